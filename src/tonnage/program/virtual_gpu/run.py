"""Runs what the user named: a script as `__main__`, or a function that returns a model and its inputs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tonnage.program.virtual_gpu.failures import Refusal


def program(virtual: Any, request: dict[str, Any]) -> None:
    sys.argv = [request["target"], *request["arguments"]]
    _seed()
    if request["kind"] == "function":
        _run_function(virtual, request)
    elif request["kind"] == "caffe":
        _run_caffe(virtual, request)
    else:
        _run_script(virtual, request["target"])


def _seed() -> None:
    """The same program gets the same answer each time, unless it seeds otherwise."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _run_script(virtual: Any, target: str) -> None:
    path = Path(target).resolve()
    sys.path[0] = str(path.parent)
    virtual.batch.watch_arguments()
    tree = ast.parse(path.read_bytes(), filename=str(path))
    uses_options = any(isinstance(n, ast.Attribute) and n.attr == "ArgumentParser" for n in ast.walk(tree)) or any(
        isinstance(n, ast.Name) and n.id == "ArgumentParser" for n in ast.walk(tree)
    )
    if not uses_options:
        tree = virtual.batch.rewrite(tree)
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    exec(compile(tree, str(path), "exec"), module.__dict__)


def _run_function(virtual: Any, request: dict[str, Any]) -> None:
    function = load_function(request["target"], request["function"])
    result = _call(virtual, function)
    _run_steps(virtual, *parts_of(result, request))


def _run_caffe(virtual: Any, request: dict[str, Any]) -> None:
    """The network of a prototxt; what its weights are does not change what it needs."""
    from tonnage.program.caffe.execution import CaffeModule
    from tonnage.program.caffe.model import open_network
    from tonnage.program.program import Program

    program = Program(kind="caffe", target=request["target"], arguments=tuple(request["arguments"]))
    network = open_network(program, batch=virtual.batch.wanted, sizes=request["sizes"])
    shapes = list(network.input_shapes.values())
    virtual.batch.note(shapes[0][0] if shapes and shapes[0] else 1, "the inputs")
    _run_steps(virtual, CaffeModule(network).eval(), tuple(torch.zeros(shape) for shape in shapes), {})


def _run_steps(virtual: Any, model: Any, inputs: Any, extras: dict[str, Any]) -> None:
    model = model.to("cuda") if isinstance(model, nn.Module) else model
    inputs = moved(inputs)
    optimizer, loss = extras.get("optimizer"), extras.get("loss")
    if isinstance(optimizer, type) or inspect.isfunction(optimizer):
        optimizer = optimizer(model.parameters())
    trains = optimizer is not None or loss is not None or (isinstance(model, nn.Module) and model.training)
    if trains and optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters())
        virtual.recorder.warn("the function names no optimizer; AdamW was assumed")
    for _ in range(virtual.loop.wanted):
        if trains:
            train_once(model, inputs, loss, optimizer)
        else:
            with torch.no_grad():
                call_model(model, inputs)


def load_function(target: str, name: str) -> Any:
    if target.endswith(".py"):
        path = Path(target).resolve()
        sys.path[0] = str(path.parent)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise Refusal(f"{target} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        sys.path[0] = os.getcwd()
        module = importlib.import_module(target)
    if not hasattr(module, name):
        known = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise Refusal(f"{target} has no function {name}", f"it has: {', '.join(known[:8])}" if known else "")
    return getattr(module, name)


def _call(virtual: Any, function: Any) -> Any:
    parameters = inspect.signature(function).parameters
    name = next((n for n in ("batch_size", "batch") if n in parameters), None)
    if name is None:
        if virtual.batch.wanted is not None:
            raise Refusal(
                f"{function.__name__} takes no batch size", "give it a parameter named batch_size to try other batches"
            )
        return function()
    default = parameters[name].default
    if isinstance(default, int):
        virtual.batch.note(default, f"the parameter {name}")
    if virtual.batch.wanted is None:
        return function() if isinstance(default, int) else function(1)
    return function(**{name: virtual.batch.wanted})


def parts_of(result: Any, request: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    if isinstance(result, dict) and "model" in result and "inputs" in result:
        return result["model"], result["inputs"], result
    if isinstance(result, tuple) and len(result) == 2 and callable(result[0]):
        return result[0], result[1], {}
    raise Refusal(
        f"{request['function']} returned {type(result).__name__}, not a model and its inputs",
        "return (model, inputs), or a dict with model, inputs and, for training, loss and optimizer",
    )


def moved(value: Any, device: str = "cuda") -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(v, device) for v in value)
    return value


def call_model(model: Any, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, list | tuple) else model(inputs)


def train_once(model: Any, inputs: Any, loss: Any, optimizer: Any) -> None:
    output = call_model(model, inputs)
    value: Any = loss(output) if loss is not None else getattr(output, "loss", None)
    if value is None:
        tensors = [t for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
        value = sum(t.float().sum() for t in tensors if t.is_floating_point())
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
