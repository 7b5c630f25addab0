"""A Caffe model: prototxt and caffemodel read, upgraded and compared. Only running it needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tonnage.errors import MissingDependency, UsageError
from tonnage.program.caffe.inputs import Sizes
from tonnage.program.caffe.layer import Shape
from tonnage.program.caffe.message import Message, read_text_message
from tonnage.program.caffe.network import Network, network_of
from tonnage.program.caffe.upgrade import upgraded
from tonnage.program.caffe.weights import Array, Stored, matched, read_weights
from tonnage.program.program import Program

if TYPE_CHECKING:
    from tonnage.program.caffe.cuda import CudaGraphs
    from tonnage.program.caffe.execution import CaffeModule
    from tonnage.program.caffe.ways import Ways


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """A network with its weights, by layer; without them only shapes and costs are known."""

    network: Network
    weights: Mapping[str, tuple[Array, ...]] | None = None

    @property
    def inputs(self) -> dict[str, Shape]:
        """Shapes by name."""
        return self.network.input_shapes

    @property
    def outputs(self) -> dict[str, Shape]:
        return self.network.output_shapes

    def module(self, device: str = "cpu", *, most_batch: int | None = None) -> CaffeModule:
        """A torch module that runs it on a device; it takes its inputs in the order of `inputs`. The fastest way is found
        for the shapes of `inputs`, or for batches of up to `most_batch` rows: that takes a moment."""
        module = self._module().to(device)
        fast = _fast(self.network, self.weights or {}, device)
        module.fast = fast
        if most_batch is None:
            fast.prepare(tuple(self.inputs.values()))
        else:
            fast.prepare_batches(most_batch)
        return module

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], device: str = "cpu") -> dict[str, npt.NDArray[Any]]:
        """Outputs by name, layer by layer. To run often, keep a `module`."""
        import torch

        missing = [name for name in self.inputs if name not in inputs]
        if missing or len(inputs) != len(self.inputs):
            raise UsageError(f"the inputs are {', '.join(self.inputs)}, not {', '.join(inputs) or 'none'}")
        module = self._module().to(device)
        given = [torch.tensor(np.asarray(inputs[name], np.float32)).to(device) for name in self.inputs]
        with torch.inference_mode():
            made = module(*given)
        return {name: value.cpu().numpy() for name, value in zip(self.outputs, made, strict=True)}

    def _module(self) -> CaffeModule:
        if self.weights is None:
            raise UsageError(f"{self.network.file} has no weights", "name the caffemodel that belongs to it")
        module: CaffeModule = _execution().CaffeModule(self.network, self.weights)
        return module


def load(
    prototxt: str | Path,
    caffemodel: str | Path | None = None,
    *,
    shapes: Mapping[str, Shape] | None = None,
    sizes: Mapping[str, int] | None = None,
    batch: int | None = None,
) -> Model:
    """A model from its files. `shapes` gives inputs another shape than the prototxt does, or one where it gives none;
    `sizes` single axes (`{"data.2": 224}`), `batch` the first axis of all inputs. Raises `NotFound`, `InvalidFile` or
    `UsageError` with one sentence that names file, layer and line."""
    network, weights = _read(Path(prototxt), caffemodel, Sizes(shapes=shapes or {}, single=sizes or {}, batch=batch))
    if weights is None:
        return Model(network=network)
    # Copied, since the file may be replaced by a newer one while the model is in use.
    return Model(network=network, weights={name: tuple(map(np.array, arrays)) for name, arrays in weights.items()})


def open_network(program: Program, *, batch: int | None = None, sizes: Mapping[str, int] | None = None) -> Network:
    """The network that a user names; weights that are there must match it, but are not read."""
    return _read(Path(program.target), _weights_of(program), Sizes(single=sizes or {}, batch=batch))[0]


def open_program(program: Program, *, batch: int | None = None, sizes: Mapping[str, int] | None = None) -> Model:
    """The model that a user names: with the caffemodel that is named behind the prototxt, else the one of the same name
    beside it, else without weights."""
    return load(program.target, _weights_of(program), sizes=sizes, batch=batch)


def _weights_of(program: Program) -> Path | None:
    beside = Path(program.target).with_suffix(".caffemodel")
    return Path(program.arguments[0]) if program.arguments else beside if beside.is_file() else None


def _read(
    prototxt: Path, caffemodel: str | Path | None, sizes: Sizes
) -> tuple[Network, dict[str, tuple[Array, ...]] | None]:
    net = upgraded(read_text_message(prototxt, "NetParameter"))
    stored = read_weights(Path(caffemodel)) if caffemodel is not None else None
    network = network_of(net, replace(sizes, channels=_channels(net, stored or {})))
    return network, matched(network, stored, str(caffemodel)) if stored is not None else None


def _channels(net: Message, stored: Stored) -> dict[str, int]:
    """How many channels a convolution with these weights expects of what it reads."""
    found: dict[str, int] = {}
    for layer in net.all("layer"):
        blobs = stored.get(layer.get("name") or "", ())
        if layer.get("type") == "Convolution" and blobs and len(blobs[0].shape) == 4 and layer.all("bottom"):
            groups = layer.part("convolution_param").get("group")
            found.setdefault(layer.all("bottom")[0], blobs[0].shape[1] * groups)
    return found


def _fast(network: Network, weights: Mapping[str, tuple[Array, ...]], device: str) -> Ways | CudaGraphs:
    from tonnage.program.caffe.ways import Ways

    if device == "cpu":
        return Ways(network, weights)
    from tonnage.program.caffe.cuda import CudaGraphs

    return CudaGraphs(network, weights, device)


def _execution() -> Any:
    try:
        from tonnage.program.caffe import execution
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependency(
            "running a Caffe model needs torch, which is not installed here", "pip install torch"
        ) from None
    return execution
