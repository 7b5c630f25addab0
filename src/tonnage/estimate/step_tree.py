"""GPU time of a step as a tree: modules by their paths, below them their operators. The flame graph is drawn from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tonnage.estimate.estimate import operation
from tonnage.program.trace import Operator

PHASES = ("forward", "backward", "optimizer", "copy")
# Kinds of work that are coloured alike; other kinds are "other".
FAMILIES = {
    "product": "product", "recurrent": "product", "recurrent_backward": "product",
    "convolution": "convolution", "convolution_data": "convolution", "convolution_weight": "convolution",
    "attention": "attention", "attention_backward": "attention",
    "normalisation": "normalisation", "normalisation_backward": "normalisation", "softmax": "normalisation",
    "reduction": "normalisation",
    "pointwise": "pointwise", "movement": "pointwise", "fill": "pointwise", "list": "pointwise",
}  # fmt: skip
MOST_BOXES = 1200
MOST_DEPTH = 24
NARROWEST = 1 / 2400  # of the whole: half a pixel of a wide page
REST = "rest"
MODULE = "module"

# Module, operator, phase, seconds; the first three as places in their lists.
CallSums = Sequence[tuple[int, int, int, float]]


@dataclass(frozen=True, slots=True)
class Box:
    """A module, an operator in it, or the rest of what is in it. `family` says which, and of operators what they do."""

    name: str
    family: str
    seconds: tuple[float, ...]  # by phase, in the order of PHASES
    children: tuple[Box, ...] = ()

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds)


@dataclass(slots=True)
class _Node:
    family: str = MODULE
    seconds: list[float] = field(default_factory=lambda: [0.0] * len(PHASES))
    children: dict[tuple[str, str], _Node] = field(default_factory=dict)

    def count(self, narrow: float) -> int:
        """Boxes that there will be, more or less."""
        return 1 + sum(child.count(narrow) for child in self.children.values() if sum(child.seconds) >= narrow)


def grow_tree(sums: CallSums, modules: Sequence[str], operators: Sequence[Operator], kinds: Sequence[str]) -> Box:
    """`kinds` says what each of `operators` does."""
    root = _Node()
    for module, operator, phase, seconds in sums:
        if seconds > 0:
            name = operation(operators[operator].name)
            leaf = (name, "copy" if PHASES[phase] == "copy" else FAMILIES.get(kinds[operator], "other"))
            _add(root, [*((part, MODULE) for part in frames(modules[module], PHASES[phase])), leaf], phase, seconds)
    narrow = NARROWEST * sum(root.seconds)
    while root.count(narrow) > MOST_BOXES:
        narrow *= 1.5
    return _box("step", root, narrow)


def frames(module: str, phase: str) -> list[str]:
    """`model.layers.3` as its parts; what runs outside of all modules is put together by what it is for."""
    if not module:
        return [{"optimizer": "the optimizer", "copy": "copies"}.get(phase, "outside of modules")]
    parts = module.split(".")
    return parts if len(parts) <= MOST_DEPTH else [*parts[:MOST_DEPTH], ".".join(parts[MOST_DEPTH:])]


def _add(node: _Node, path: Sequence[tuple[str, str]], phase: int, seconds: float) -> None:
    node.seconds[phase] += seconds
    for name, family in path:
        node = node.children.setdefault((name, family), _Node(family))
        node.seconds[phase] += seconds


def _box(name: str, node: _Node, narrow: float) -> Box:
    wide = {key: child for key, child in node.children.items() if sum(child.seconds) >= narrow}
    children = [_box(child_name, child, narrow) for (child_name, _), child in wide.items()]
    rest = {key: child for key, child in node.children.items() if key not in wide}
    if rest:
        seconds = tuple(sum(parts) for parts in zip(*(child.seconds for child in rest.values()), strict=True))
        children.append(Box(f"{len(rest)} more" if len(rest) > 1 else next(iter(rest))[0], REST, seconds))
    return Box(name, node.family, tuple(node.seconds), tuple(children))
