"""A network as a graph of eager operators: what a program's `build` returns, exported by torch.

The names of the graph's `call_function` nodes are the operations of a `Network` and of a `Distribution`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tonnage.errors import CaptureError, MissingDependency, UsageError

if TYPE_CHECKING:
    from torch import nn
    from torch.fx import GraphModule

    from tonnage.program.program import Program

_CUT_BEFORE = "take a prototxt that ends before it, and run it on what the last stage gives"
_SHAPE = "return (module, inputs): inputs are a tensor, a tuple of arguments or a dict of keyword arguments"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exported:
    """A graph with one example of its inputs. `loss` is the node that training descends on; "" for inference."""

    name: str
    module: GraphModule
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    loss: str = ""


def export_program(program: Program, *, training: bool = False, batch: int | None = None) -> Exported:
    """The network that a `file.py:function` builds, run in this process as the user would; raises `CaptureError`."""
    if program.kind == "caffe":
        return _export_caffe(program, training, batch)
    if program.kind != "function":
        raise UsageError(f"{program.name} names no function that builds a network", "write it as file.py:build")
    _check_torch()
    with _own_path():
        try:
            module, inputs, loss = _parts(_build(program, batch), program.name)
        except CaptureError:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's own code raises
            raise CaptureError(f"{program.name} failed: {_sentence(error)}") from error
        return export_module(module, inputs, name=program.name, training=training, loss=loss)


def export_module(
    module: nn.Module, inputs: Any, *, name: str = "", training: bool = False, loss: Callable[[Any], Any] | None = None
) -> Exported:
    """The graph of a module: in inference mode without gradients, or in training mode down to its loss."""
    import torch

    name = name or type(module).__name__
    arguments, keywords = _call(inputs)
    module.train(training)
    with _computing(module, loss if training else None), torch.set_grad_enabled(training):
        try:
            exported = torch.export.export(module, arguments, dict(keywords))
        except Exception as error:
            raise CaptureError(
                f"{name} cannot be exported: {_sentence(error)}",
                "torch.export follows tensors, not Python that depends on their values: see torch.cond and torch._check",
            ) from error
        graph: Any = exported.module(check_guards=False)
    found = _loss_of(graph, name) if training else ""
    return Exported(name=name, module=graph, arguments=arguments, keywords=keywords, loss=found)


def _export_caffe(program: Program, training: bool, batch: int | None) -> Exported:
    """The network of a prototxt, with weights where there are any; their values do not matter to its costs."""
    if training:
        raise UsageError(f"{program.target} can only be run, not trained", "leave out --train")
    _check_torch()
    import torch

    from tonnage.program.caffe.execution import CaffeModule
    from tonnage.program.caffe.front import depends_on_values
    from tonnage.program.caffe.model import open_program

    model = open_program(program, batch=batch)
    later = depends_on_values(model.network)
    for layer in model.network.layers:
        if later.intersection(layer.makes):
            layer.refuse("makes as many rows as it finds, so it cannot be a node of a graph", hint=_CUT_BEFORE)
    inputs = tuple(torch.zeros(shape) for shape in model.inputs.values())
    return export_module(CaffeModule(model.network, model.weights), inputs, name=program.name)


def kept_together(module: GraphModule) -> tuple[frozenset[str], ...]:
    """Sets of operations that must be on one device; every cut between them is safe."""
    from tonnage.program.aliasing import aliasing_of

    return aliasing_of(module).together


def _check_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingDependency("exporting a network needs torch, which is not installed here", "pip install torch")


@contextmanager
def _own_path() -> Iterator[None]:
    """The program's folder comes first while it is loaded, as when it is run; afterwards all is as before."""
    before, arguments = list(sys.path), list(sys.argv)
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path[:], sys.argv[:] = before, arguments


def _build(program: Program, batch: int | None) -> Any:
    import torch

    from tonnage.program.virtual_gpu.failures import Refusal
    from tonnage.program.virtual_gpu.run import load_function

    torch.manual_seed(0)  # the same weights each time, unless the program seeds otherwise
    sys.argv[:] = [program.target, *program.arguments]
    try:
        function = load_function(program.target, program.function)
    except Refusal as refusal:
        raise CaptureError(str(refusal), refusal.hint) from None
    sizes = [name for name in ("batch_size", "batch") if name in inspect.signature(function).parameters]
    if batch is None:
        return function()
    if not sizes:
        raise UsageError(f"{program.name} takes no batch size", "give it a parameter named batch_size")
    return function(**{sizes[0]: batch})


def _parts(built: Any, name: str) -> tuple[nn.Module, Any, Callable[[Any], Any] | None]:
    """Module, inputs and, where the program names one, the function from its output to the loss."""
    from torch import nn

    if isinstance(built, nn.Module) and hasattr(built, "example_inputs"):
        return built, built.example_inputs, None
    if isinstance(built, tuple) and len(built) == 2 and isinstance(built[0], nn.Module):
        return built[0], built[1], None
    if isinstance(built, dict) and isinstance(built.get("model"), nn.Module) and "inputs" in built:
        return built["model"], built["inputs"], built.get("loss")
    raise CaptureError(f"{name} returned {type(built).__name__}, not a module and its inputs", _SHAPE)


def _call(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)), {}


@contextmanager
def _computing(module: nn.Module, loss: Callable[[Any], Any] | None) -> Iterator[None]:
    """The module ends with the loss; as an attribute of this one, so that no name in it changes."""
    if loss is None:
        yield
        return
    forward, wanted = module.forward, loss

    @functools.wraps(forward)
    def with_loss(*arguments: Any, **keywords: Any) -> Any:
        return wanted(forward(*arguments, **keywords))

    module.forward = with_loss
    try:
        yield
    finally:
        del module.forward


def _loss_of(graph: GraphModule, name: str) -> str:
    """The node of the loss: the output itself, or what it calls `loss`."""
    from torch.utils import _pytree as pytree

    nodes = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    codegen: Any = graph.graph._codegen
    output = pytree.tree_unflatten(list(nodes), codegen.pytree_info.out_spec)
    found: Any = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", output)
    found = found[0] if isinstance(found, tuple | list) and len(found) == 1 else found
    value = getattr(found, "meta", {}).get("val")
    if value is None or value.numel() != 1 or not value.is_floating_point():
        raise CaptureError(
            f"{name} returns no loss to train on",
            "return a scalar, or something with .loss, or name a `loss` function beside model and inputs",
        )
    return str(found.name)


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
