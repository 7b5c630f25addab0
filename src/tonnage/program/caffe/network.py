"""A Caffe network for inference as plain data: its layers in order, its inputs and outputs, and the shape of every blob.

What only training needs is left out: layers that `include` and `exclude` keep out of the TEST phase, losses and accuracies,
and labels that nothing else reads. Everything else must be known, or is refused by name, type and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tonnage.errors import InvalidFile, UsageError
from tonnage.program.caffe.inputs import DATA_TYPES, Sizes, checked_shapes, input_shape
from tonnage.program.caffe.layer import Layer, Shape, shown
from tonnage.program.caffe.message import Message, at, one_line
from tonnage.program.caffe.shapes import RULES, shapes_of

MOST_LAYERS = 100_000
_JUDGES = frozenset({"Accuracy", "DetectionEvaluate", "ParseEvaluate", "HDF5Output"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Layers that compute, in order. Inputs and outputs are names of blobs with the numbers of their values."""

    name: str
    file: str
    layers: tuple[Layer, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    shapes: tuple[Shape, ...]  # of values, by number
    weights: Mapping[str, tuple[Shape, ...]] = field(default_factory=dict)  # by layer
    sources: tuple[Layer, ...] = ()  # layers that bring data

    @property
    def input_shapes(self) -> dict[str, Shape]:
        return {name: self.shapes[number] for name, number in self.inputs.items()}

    @property
    def output_shapes(self) -> dict[str, Shape]:
        return {name: self.shapes[number] for name, number in self.outputs.items()}

    @property
    def readers(self) -> dict[int, int]:
        """How many layers read each value, and whether it is an output."""
        counts = dict.fromkeys(range(len(self.shapes)), 0)
        for number in (*(read for layer in self.layers for read in layer.reads), *self.outputs.values()):
            counts[number] += 1
        return counts


def network_of(net: Message, sizes: Sizes | None = None) -> Network:
    """The network that an upgraded message describes; raises `InvalidFile` or `UsageError`."""
    sizes = sizes or Sizes()
    layers = _chosen(net)
    if len(layers) > MOST_LAYERS:
        raise InvalidFile(f"{net.file} has more than {MOST_LAYERS:,} layers")
    sources = [layer for layer in layers if layer.type in DATA_TYPES]
    computing = [layer for layer in layers if layer.type not in DATA_TYPES and not _only_judges(layer)]
    for layer in computing:
        if layer.type not in RULES:
            layer.refuse("is of a type that is not supported", hint="see docs/reference/caffe.md for those that are")
    if not computing:
        hint = "a solver names its network in another file; for inference that is often deploy.prototxt"
        raise InvalidFile(f"{net.file} has no layers that compute anything", hint)
    checked_shapes(sizes.shapes, [top for layer in sources for top in layer.tops])
    return _Builder(net, sizes, sources, {name for layer in layers for name in layer.bottoms}).build(computing)


def reshaped(network: Network, shapes: Mapping[str, Shape]) -> Network:
    """The same network for inputs of other shapes; raises `InvalidFile` or `UsageError` where they cannot be."""
    builder = _Builder(None, Sizes(shapes={**network.input_shapes, **shapes}), list(network.sources), set())
    found = replace(builder.build(list(network.layers), tuple(network.inputs)), name=network.name, file=network.file)
    for name, wanted in found.weights.items():
        for before, after in zip(network.weights[name], wanted, strict=True):
            if before != after:
                raise UsageError(
                    f"inputs of this shape need weights of {shown(after)} in layer {name}, not {shown(before)}"
                )
    return found


class _Builder:
    """Numbers values and finds their shapes, layer by layer."""

    def __init__(self, net: Message | None, sizes: Sizes, sources: list[Layer], read: set[str]) -> None:
        self._name = str(net.get("name") or "") if net is not None else ""
        self._file = net.file if net is not None else ""
        self._sizes, self._sources, self._read_anywhere = sizes, sources, read
        self._values: dict[str, int] = {}
        self._shapes: list[Shape] = []
        self._weights: dict[str, tuple[Shape, ...]] = {}

    def build(self, layers: list[Layer], wanted: tuple[str, ...] | None = None) -> Network:
        self._read = {name for layer in layers for name in layer.bottoms}
        inputs = self._inputs(wanted)
        open_: dict[str, None] = {}
        placed = []
        for layer in layers:
            placed.append(self._place(layer))
            for name in layer.bottoms:
                open_.pop(name, None)
            open_.update(dict.fromkeys(layer.tops))
        return Network(
            name=self._name, file=self._file, layers=tuple(placed), inputs=inputs,
            outputs={name: self._values[name] for name in open_}, shapes=tuple(self._shapes),
            weights=self._weights, sources=tuple(self._sources),
        )  # fmt: skip

    def _inputs(self, wanted: tuple[str, ...] | None) -> dict[str, int]:
        """Tops of layers that bring data, unless only what is left out reads them, as it does labels."""
        found: dict[str, int] = {}
        for layer in self._sources:
            for number, name in enumerate(layer.tops):
                unread = name not in self._read and (name in self._read_anywhere or layer.type != "Input")
                if unread if wanted is None else name not in wanted:
                    continue
                if name in found:
                    layer.refuse(f"makes {name}, which another layer makes already")
                found[name] = self._make(name, input_shape(layer, number, self._sizes))
        return found

    def _place(self, layer: Layer) -> Layer:
        for name in layer.bottoms:
            if name not in self._values:
                layer.refuse(f"reads {name}, which no layer before it makes")
        reads = tuple(self._values[name] for name in layer.bottoms)
        shaped = shapes_of(layer, [self._shapes[number] for number in reads])
        for name in layer.tops:
            if name in self._values and name not in layer.bottoms:
                layer.refuse(f"makes {name}, which another layer makes already")
        if len(set(layer.tops)) != len(layer.tops):
            layer.refuse("has two tops of one name")
        if shaped.weights:
            if layer.name in self._weights:
                layer.refuse("has the name of another layer with weights")
            self._weights[layer.name] = shaped.weights
        makes = tuple(self._make(name, shape) for name, shape in zip(layer.tops, shaped.tops, strict=True))
        return replace(layer, reads=reads, makes=makes)

    def _make(self, name: str, shape: Shape) -> int:
        self._values[name] = len(self._shapes)
        self._shapes.append(shape)
        return self._values[name]


# -- which layers -----------------------------------------------------------------------------------------------------


def _chosen(net: Message) -> list[Layer]:
    """The layers of the TEST phase."""
    state = net.part("state")
    found = []
    for message in net.all("layer"):
        if message.get("type") is None:
            told = one_line(f"layer {message.get('name') or ''} does not say its type")
            raise InvalidFile(f"{at(message.file, message.line)}: {told}")
        layer = Layer(
            name=message.get("name") or "",
            type=message.get("type"),
            bottoms=tuple(message.all("bottom")),
            tops=tuple(message.all("top")),
            message=message,
        )
        if _included(layer, state):
            found.append(layer)
    return found


def _included(layer: Layer, state: Message) -> bool:
    include, exclude = layer.message.all("include"), layer.message.all("exclude")
    if include and exclude:
        layer.refuse("has rules to include and rules to exclude it")
    if include:
        return any(_meets(rule, state) for rule in include)
    return not any(_meets(rule, state) for rule in exclude)


def _meets(rule: Message, state: Message) -> bool:
    level, stages = state.get("level"), state.all("stage")
    if "phase" in rule and rule.get("phase") != "TEST":
        return False
    if "min_level" in rule and level < rule.get("min_level"):
        return False
    if "max_level" in rule and level > rule.get("max_level"):
        return False
    return all(stage in stages for stage in rule.all("stage")) and not any(
        stage in stages for stage in rule.all("not_stage")
    )


def _only_judges(layer: Layer) -> bool:
    """Losses and accuracies compare with labels, which an inference does not have."""
    return layer.type in _JUDGES or layer.type.endswith("Loss")
