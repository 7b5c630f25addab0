"""What one instance of a model needs: weights and activations at the largest batch, by this package's own estimate.

    python -m tonnage.serve.memory_needs < QUESTION

A process of its own, which ends with its answer, so that the server never imports what it takes to follow a model.
Where a model cannot be followed the answer is its weights alone: that is less than it needs, and never too much.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.errors import TonnageError
from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.deriving import DEFAULT_BATCH_SIZE
from tonnage.serve.runtimes import shares_first_axis

_OPEN_SIZE = 1  # of an axis that neither file nor configuration fixes: what clients will send is not known
# Resident bytes of an instance without a model, by who runs it.
_PROCESS_BYTES = {"onnxruntime": 56 << 20, "pytorch": 256 << 20, "caffe": 256 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`gpu` is a name of the catalogue; "" for the processor."""

    path: str
    configuration: ModelConfiguration
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Of one instance. `rows` is the batch that was estimated; 0 where only the weights are known."""

    total_bytes: int
    weights_bytes: int
    rows: int = 0
    problem: str = ""  # why only the weights are known


def weights_on_disk(path: Path) -> int:
    """The least that a model can need, without looking into its files."""
    files = [path, path.with_suffix(".caffemodel")] if path.suffix == ".prototxt" else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def needs_of(question: Question) -> Needs:
    """Never raises for what a file says: whoever loads it will tell better what is wrong with it."""
    weights = weights_on_disk(Path(question.path))
    base = 0 if question.gpu else _PROCESS_BYTES.get(question.configuration.backend, 0)
    try:
        trace, rows = _trace(question)
    except TonnageError as error:
        return Needs(total_bytes=weights + base, weights_bytes=weights, problem=error.message)
    except Exception as error:  # a damaged file may break what reads it in any way
        return Needs(total_bytes=weights + base, weights_bytes=weights, problem=f"{type(error).__name__}: {error}")
    kept = _parameter_bytes(trace) or weights
    total = _on_gpu(trace, question.gpu) if question.gpu else _on_processor(trace, question.configuration.backend, kept)
    return Needs(total_bytes=max(total, weights), weights_bytes=kept, rows=rows)


# -- following a model ----------------------------------------------------------------------------------------------------


def _trace(question: Question) -> tuple[Any, int]:
    """What its inference does, and with how many rows."""
    path, configuration = Path(question.path), question.configuration
    if configuration.backend == "onnxruntime":
        return _trace_onnx(path, configuration)
    if configuration.backend == "caffe":
        return _trace_caffe(path, configuration)
    if path.suffix == ".pt2":
        return _trace_exported(path, configuration)
    raise TonnageError("a file of TorchScript cannot be followed")


def _trace_onnx(path: Path, configuration: ModelConfiguration) -> tuple[Any, int]:
    from tonnage.program.onnx_file import read_model
    from tonnage.program.onnx_model import trace_onnx

    graph = read_model(path).graph
    constants = {tensor.name for tensor in graph.initializer}
    shapes = {info.name: _open_dims(info) for info in graph.input if info.name not in constants}
    shared = shares_first_axis([*shapes.values(), *map(_open_dims, graph.output)])
    rows = _rows(configuration, shared)
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        fixed = _fixed(configuration, name, shape, rows)
        sizes |= {size: number for size, number in zip(shape, fixed, strict=True) if isinstance(size, str)}
    return trace_onnx(path, sizes=sizes, runs=2), rows


def _open_dims(info: Any) -> list[int | str]:
    """As the reader of ONNX files names them."""
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or f"{info.name}.{axis}"
        for axis, dim in enumerate(info.type.tensor_type.shape.dim)
    ]


def _trace_caffe(path: Path, configuration: ModelConfiguration) -> tuple[Any, int]:
    from tonnage.program.exported import export_program
    from tonnage.program.program import Program
    from tonnage.program.virtual_gpu.graph_run import run_graph

    rows = configuration.max_batch_size
    exported = export_program(Program(kind="caffe", target=str(path)), batch=rows or None)
    return run_graph(exported.module).trace, max(rows, 1)


def _trace_exported(path: Path, configuration: ModelConfiguration) -> tuple[Any, int]:
    import torch

    from tonnage.program.virtual_gpu.graph_run import run_graph
    from tonnage.serve.runtimes.torch_exported import has_batch_axis, inputs_of, outputs_of, read_program

    program = read_program(path)
    given = inputs_of(program, path)
    rows = _rows(configuration, has_batch_axis(given, outputs_of(program, path)))
    module = program.module(check_guards=False)
    nodes = list(module.graph.find_nodes(op="placeholder"))
    for leaf in given:
        shape = _fixed(configuration, leaf.spec.name, leaf.sizes, rows)
        value = nodes[leaf.place].meta["val"]
        nodes[leaf.place].meta["val"] = torch.empty(shape, dtype=value.dtype, device="meta")
    return run_graph(module).trace, rows


def _rows(configuration: ModelConfiguration, is_shared: bool) -> int:
    """The largest batch: as configured, else what a model gets whose file leaves it open."""
    derived = is_shared and not configuration.inputs
    return configuration.max_batch_size or (DEFAULT_BATCH_SIZE if derived else 1)


def _fixed(configuration: ModelConfiguration, name: str, sizes: Sequence[int | str], rows: int) -> list[int]:
    """A shape whose open sizes are those of the configuration, where it has them."""
    spec = next((spec for spec in configuration.inputs if spec.name == name), None)
    told: list[int] = []
    if spec is not None:
        dims = spec.dims if spec.reshape is None else spec.reshape
        told = [rows, *dims] if configuration.has_batches else list(dims)
    if len(told) != len(sizes):
        told = [rows, *[-1] * (len(sizes) - 1)] if sizes else []
    return [
        size if isinstance(size, int) else max(size_told, _OPEN_SIZE)
        for size, size_told in zip(sizes, told, strict=True)
    ]


# -- bytes ----------------------------------------------------------------------------------------------------------------


def _on_gpu(trace: Any, gpu: str) -> int:
    """With the context and what the allocator reserves."""
    from tonnage.estimate.estimator import Estimator
    from tonnage.hardware import find_gpu

    return int(Estimator(trace).estimate(find_gpu(gpu)).device_bytes.value)


def _on_processor(trace: Any, backend: str, weights: int) -> int:
    """With the process. The arena of onnxruntime grows in powers of two, and it rearranges what convolutions read: a
    network of two of them took 2.05 times its tensors."""
    peak = _peak_bytes(trace)
    if backend == "onnxruntime":
        peak = weights + 2 * max(peak - weights, 0)
    return peak + _PROCESS_BYTES.get(backend, 0)


def _peak_bytes(trace: Any) -> int:
    """The most that is in use at once."""
    from tonnage.program.trace import Event

    sign = np.select([trace.event_kind == Event.ALLOCATE, trace.event_kind == Event.FREE], [1, -1], 0)
    blocks = np.where(sign != 0, trace.event_subject, 0)
    sizes = trace.block_bytes[blocks] if len(trace.block_bytes) else np.zeros(len(blocks), np.int64)
    return int(np.cumsum(sign * sizes).max(initial=0))


def _parameter_bytes(trace: Any) -> int:
    from tonnage.program.trace import Category

    return int(trace.block_bytes[trace.block_category == Category.PARAMETERS].sum())


def main() -> None:
    os.nice(10)  # requests that are being answered go first
    warnings.simplefilter("ignore")
    answer = needs_of(pickle.loads(sys.stdin.buffer.read()))  # from the server that started this process
    print(json.dumps(asdict(answer)))


if __name__ == "__main__":
    main()
