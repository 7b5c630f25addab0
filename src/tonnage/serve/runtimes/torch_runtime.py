"""PyTorch models: files of `torch.export` (.pt2), which tell their tensors, and of TorchScript (.pt), which do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from tonnage.errors import InvalidFile, UsageError
from tonnage.serve.configuration import TensorSpec
from tonnage.serve.datatypes import BF16, BYTES
from tonnage.serve.runtimes import Arrays, LoadOrder

DATATYPES = {
    torch.bool: "BOOL", torch.uint8: "UINT8", torch.uint16: "UINT16", torch.uint32: "UINT32", torch.uint64: "UINT64",
    torch.int8: "INT8", torch.int16: "INT16", torch.int32: "INT32", torch.int64: "INT64", torch.float16: "FP16",
    torch.float32: "FP32", torch.float64: "FP64", torch.bfloat16: BF16,
}  # fmt: skip


class TorchRuntime:
    """A function of tensors in the order of its inputs."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        *,
        batch_axis: bool,
        device: str,
    ) -> None:
        self._function, self._device = function, torch.device(device)
        self.inputs, self.outputs, self.batch_axis = inputs, outputs, batch_axis
        self._half = {each.name for each in inputs if each.datatype == BF16}
        self.note = ""  # on how it runs, for the log

    def run(self, inputs: Arrays, wanted: tuple[str, ...]) -> Arrays:
        with torch.inference_mode():
            given = [self._tensor(spec.name, inputs[spec.name]) for spec in self.inputs if spec.name in inputs]
            try:
                made = list(_flat(self._function(*given)))
            except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
                raise UsageError(_sentence(error)) from error
        if len(made) != len(self.outputs):
            raise InvalidFile(
                f"the model makes {len(made)} tensors; its configuration names {len(self.outputs)} outputs"
            )
        named = zip(self.outputs, made, strict=True)
        return {spec.name: as_numpy(tensor) for spec, tensor in named if not wanted or spec.name in wanted}

    def _tensor(self, name: str, array: npt.NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if name in self._half:
            tensor = tensor.to(torch.bfloat16)
        return tensor.to(self._device)


def load(order: LoadOrder) -> TorchRuntime:
    torch.set_num_threads(order.setting("intra_op_thread_count", order.threads))
    path = Path(order.path)
    return _exported(path, order) if path.suffix == ".pt2" else _scripted(path, order)


def as_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()  # numpy has no such kind
    return tensor.detach().contiguous().cpu().numpy()


def _exported(path: Path, order: LoadOrder) -> TorchRuntime:
    try:
        program = torch.export.load(path)
    except Exception as error:  # zip, pickle, JSON, an operator that is not here: each has its own class
        raise InvalidFile(f"{path} is not a file of torch.export: {_sentence(error)}") from error
    nodes = {node.name: node for node in program.graph.nodes}
    names = list(program.graph_signature.user_inputs)
    given = [_described(str(name), nodes[str(name)], path) for name in names]
    made_nodes = [nodes.get(str(name)) for name in program.graph_signature.user_outputs]
    made = [_described(name, node, path) for name, node in zip(_output_names(program), made_nodes, strict=True)]
    first = {sizes[0] if sizes else None for _, sizes in (*given, *made)}
    batch_axis = len(first) == 1 and isinstance(next(iter(first)), str)
    module = program.module().to(order.device)
    tree = program.call_spec.in_spec

    def call(*tensors: torch.Tensor) -> Any:
        arguments, keywords = torch.utils._pytree.tree_unflatten(tensors, tree)
        return module(*arguments, **keywords)

    inputs, outputs = tuple(spec for spec, _ in given), tuple(spec for spec, _ in made)
    return TorchRuntime(
        call,
        _renamed(inputs, order.configuration.inputs),
        _renamed(outputs, order.configuration.outputs),
        batch_axis=batch_axis,
        device=order.device,
    )


def _scripted(path: Path, order: LoadOrder) -> TorchRuntime:
    try:
        module = torch.jit.load(str(path), map_location=order.device).eval()  # type: ignore[no-untyped-call]
    except Exception as error:  # as above
        raise InvalidFile(f"{path} is not a file of TorchScript: {_sentence(error)}") from error
    settings = order.configuration
    if not settings.inputs or not settings.outputs:
        raise InvalidFile(
            f"{path} does not tell the shapes of its tensors, as no file of TorchScript does",
            "name input and output in config.pbtxt, or save the model with torch.export",
        )
    arguments = [argument.name for argument in module.forward.schema.arguments[1:]]
    inputs = _in_order(settings.inputs, arguments, path)
    whole = [_whole(spec, settings.has_batches) for spec in (*inputs, *settings.outputs)]
    return TorchRuntime(
        module,
        tuple(whole[: len(inputs)]),
        tuple(whole[len(inputs) :]),
        batch_axis=settings.has_batches,
        device=order.device,
    )


def _described(name: str, node: Any, path: Path) -> tuple[TensorSpec, list[int | str]]:
    """With sizes as numbers, or as the names of those that may vary."""
    value = node.meta.get("val") if node is not None else None
    if not isinstance(value, torch.Tensor) or value.dtype not in DATATYPES:
        raise InvalidFile(f"{path}: {name} is no tensor that the protocol can carry")
    sizes: list[int | str] = [size if isinstance(size, int) else str(size) for size in value.shape]
    dims = tuple(size if isinstance(size, int) else -1 for size in sizes)
    return TensorSpec(name=name, datatype=DATATYPES[value.dtype], dims=dims), sizes


def _output_names(program: Any) -> list[str]:
    """Keys where a model returns a dictionary; else `output`, or `output_0` and so on."""
    leaves = list(program.graph_signature.user_outputs)
    example = torch.utils._pytree.tree_unflatten(range(len(leaves)), program.call_spec.out_spec)
    if isinstance(example, dict) and all(isinstance(value, int) for value in example.values()):
        keys = {place: str(key) for key, place in example.items()}
        return [keys[place] for place in range(len(leaves))]
    return ["output"] if len(leaves) == 1 else [f"output_{place}" for place in range(len(leaves))]


def _renamed(found: tuple[TensorSpec, ...], named: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """A configuration may call tensors otherwise: then its order is that of the file."""
    names = {spec.name for spec in named}
    if not named or names <= {spec.name for spec in found} or len(named) != len(found):
        return found
    pairs = zip(found, named, strict=True)
    return tuple(TensorSpec(name=other.name, datatype=spec.datatype, dims=spec.dims) for spec, other in pairs)


def _in_order(specs: tuple[TensorSpec, ...], arguments: list[str], path: Path) -> list[TensorSpec]:
    """By the names of `forward`'s arguments, else by the numbers behind two underscores, else as they stand."""
    by_name = {spec.name: spec for spec in specs}
    if set(by_name) <= set(arguments):
        return [by_name[name] for name in arguments if name in by_name]
    numbers = [spec.name.rpartition("__")[2] for spec in specs]
    if all(number.isdigit() for number in numbers):
        return [spec for _, spec in sorted(zip(map(int, numbers), specs, strict=True), key=lambda pair: pair[0])]
    if len(specs) > len(arguments):
        raise InvalidFile(f"{path} takes {len(arguments)} tensors; its configuration names {len(specs)} inputs")
    return list(specs)


def _whole(spec: TensorSpec, has_batches: bool) -> TensorSpec:
    if spec.datatype == BYTES:
        raise InvalidFile(f"{spec.name} is a string, which PyTorch models do not take")
    dims = (-1, *spec.dims) if has_batches else spec.dims
    return TensorSpec(name=spec.name, datatype=spec.datatype, dims=dims)


def _flat(made: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(made)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
