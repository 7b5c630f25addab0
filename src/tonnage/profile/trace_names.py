"""What the names in Kineto's traces mean."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

BACKWARD_PREFIX = "autograd::engine::evaluate_function"
MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep#"
OPTIMIZER_PREFIX = "Optimizer."
DATA_PREFIX = "enumerate(DataLoader)"


class Copy(NamedTuple):
    """`direction` is `H2D`, `D2H`, or nothing for what does not cross the bus."""

    direction: str
    pinned: bool


class Names:
    """Each text once; rows hold its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}

    def index(self, text: str) -> int:
        found = self._index.get(text)
        if found is None:
            found = self._index[text] = len(self.texts)
            self.texts.append(text)
        return found


@cache
def copy_kind(name: str) -> Copy:
    """From `Memcpy HtoD (Pinned -> Device)` and the like; kernels are no copies."""
    if not name.startswith("Memcpy "):
        return Copy("", False)
    direction = {"HtoD": "H2D", "DtoH": "D2H"}.get(name.split(" ")[1], "")
    host_side = name.partition("(")[2].rstrip(")").split(" -> ")
    return Copy(direction, bool(direction) and any(side.strip() == "Pinned" for side in host_side))


def range_kind(name: str) -> str:
    """The kind, in `trace_columns.Kind`, of a range that was marked on the host."""
    if name.startswith(OPTIMIZER_PREFIX):
        return "OPTIMIZER"
    if name.startswith(DATA_PREFIX):
        return "DATA"
    if name.startswith(STEP_PREFIX):
        return "STEP"
    return "MODULE" if name.startswith(MODULE_PREFIX) else "OTHER"


def module_path(name: str) -> str:
    return name.removeprefix(MODULE_PREFIX)
