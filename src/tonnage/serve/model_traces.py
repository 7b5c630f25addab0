"""What the inference of a model does at its largest batch, followed without running it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import TonnageError
from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.deriving import DEFAULT_BATCH_SIZE
from tonnage.serve.runtimes import shares_first_axis

if TYPE_CHECKING:
    from tonnage.program.trace import Trace

_OPEN_SIZE = 1  # of an axis that neither file nor configuration fixes: what clients will send is not known
_RUNS = 2
_FLOAT_BYTES = 4


def trace_model(path: Path, configuration: ModelConfiguration, *, on_gpu: bool) -> tuple[Trace, int]:
    """Its Trace, and the rows of the batch. Raises a `TonnageError`, or whatever a damaged file brings about."""
    if configuration.backend == "onnxruntime":
        return _trace_onnx(path, configuration)
    if configuration.backend == "caffe":
        rows = configuration.max_batch_size
        return (_trace_caffe if on_gpu else _trace_blobs)(path, rows), max(rows, 1)
    if path.suffix == ".pt2":
        return _trace_exported(path, configuration)
    raise TonnageError("a file of TorchScript cannot be followed")


def _trace_onnx(path: Path, configuration: ModelConfiguration) -> tuple[Trace, int]:
    from tonnage.program.onnx_file import read_model
    from tonnage.program.onnx_model import trace_onnx

    graph = read_model(path).graph
    constants = {tensor.name for tensor in graph.initializer}
    shapes = {info.name: _open_dims(info) for info in graph.input if info.name not in constants}
    rows = _rows(configuration, shares_first_axis([*shapes.values(), *map(_open_dims, graph.output)]))
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        fixed = _fixed(configuration, name, shape, rows)
        sizes |= {size: number for size, number in zip(shape, fixed, strict=True) if isinstance(size, str)}
    return trace_onnx(path, sizes=sizes, runs=_RUNS), rows


def _open_dims(info: Any) -> list[int | str]:
    """As the reader of ONNX files names them."""
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or f"{info.name}.{axis}"
        for axis, dim in enumerate(info.type.tensor_type.shape.dim)
    ]


def _trace_caffe(path: Path, rows: int) -> Trace:
    """With its operators, which have workspaces on a GPU."""
    from tonnage.program.exported import export_program
    from tonnage.program.program import Program
    from tonnage.program.virtual_gpu.graph_run import run_graph

    exported = export_program(Program(kind="caffe", target=str(path)), batch=rows or None)
    return run_graph(exported.module).trace


def _trace_blobs(path: Path, rows: int) -> Trace:
    """Only its blobs: the reader knows their shapes, and importing torch would take longer than all the rest."""
    from tonnage.program.caffe.model import open_network
    from tonnage.program.program import Program
    from tonnage.program.trace import Category, Origin, Phase
    from tonnage.program.virtual_gpu.recorder import Recorder

    network = open_network(Program(kind="caffe", target=str(path)), batch=rows or None)
    recorder = Recorder()
    for shape in (shape for shapes in network.weights.values() for shape in shapes):
        block = recorder.allocate(prod(shape) * _FLOAT_BYTES, 0, Phase.SETUP)
        recorder.tag(block, Category.PARAMETERS)
    last = {number: place for place, layer in enumerate(network.layers) for number in (*layer.makes, *layer.reads)}
    kept = {*network.inputs.values(), *network.outputs.values()}
    blocks = {}
    for number in network.inputs.values():
        blocks[number] = recorder.allocate(prod(network.shapes[number]) * _FLOAT_BYTES, 0, Phase.COPY)
    for place, layer in enumerate(network.layers):
        for number in layer.makes:
            blocks[number] = recorder.allocate(prod(network.shapes[number]) * _FLOAT_BYTES, 0, Phase.FORWARD)
        for number in [number for number in blocks if last.get(number) == place and number not in kept]:
            recorder.free(blocks.pop(number))
    recorder.end_step()
    return recorder.trace(Origin(program=str(path), kind="caffe", mode="inference", steps=1))


def _trace_exported(path: Path, configuration: ModelConfiguration) -> tuple[Trace, int]:
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
    pairs = zip(sizes, told, strict=True)
    return [size if isinstance(size, int) else max(size_told, _OPEN_SIZE) for size, size_told in pairs]
