"""What no rule can argue with: a candidate without the memory, the GPU or anything known about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tonnage.configure.inventory import Candidate
from tonnage.configure.predict import is_predictable
from tonnage.configure.work import Work
from tonnage.errors import DoesNotFit
from tonnage.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a candidate is out of the question, and by which factor it misses."""

    limit: str
    text: str
    excess: float = inf


def unusable(work: Work, candidate: Candidate) -> Obstacle | None:
    """Before anything is predicted."""
    if candidate.gpu is None and work.indicators.device == "cuda":
        return Obstacle(limit="a GPU", text="the program computes on a GPU, and here is none")
    if candidate.gpu is not None and not is_predictable(work, candidate):
        return Obstacle(limit="GPU", text="the program was seen on a processor only; nothing is known of it on a GPU")
    return _too_small(work, candidate)


def _too_small(work: Work, candidate: Candidate) -> Obstacle | None:
    if candidate.gpu is None:
        return None
    known = work.known.get(candidate.gpu.name)
    need = known.device_bytes if known else work.indicators.peak_gpu_bytes
    has = candidate.gpu.usable_bytes
    return _exceeded("GPU memory", need, has) if need is not None and need > has else None


def too_little_memory(wanted_bytes: int, peak_bytes: int | None, candidate: Candidate) -> Obstacle | None:
    """Of the host. What was really used counts, where it is known; what the rules add to it may be less."""
    need = wanted_bytes if peak_bytes is None else peak_bytes * max(candidate.gpu_count, 1)
    has = candidate.node.memory_bytes
    return _exceeded("host memory", need, has) if need > has else None


def _exceeded(limit: str, need: int, has: int) -> Obstacle:
    return Obstacle(limit=limit, text=f"{limit}: needs {format_bytes(need)} of {format_bytes(has)}", excess=need / has)


def nothing_fits(rejected: Sequence[tuple[Candidate, Obstacle]]) -> DoesNotFit:
    """Names the candidate that comes nearest, the limit that binds there and by how much."""
    if not rejected:
        return DoesNotFit("the inventory offers nothing at all", "describe nodes in cluster.yaml")
    candidate, obstacle = min(rejected, key=lambda pair: pair[1].excess)
    by = "" if obstacle.excess == inf else f" ({(obstacle.excess - 1) * 100:.0f} % too much)"
    hints = {
        "GPU memory": "a smaller batch needs less: tonnage estimate --find-max-batch",
        "host memory": "fewer loader workers need less",
        "a GPU": "add nodes with GPUs to cluster.yaml",
        "GPU": "send estimates along: tonnage configure --predict, or profile it on a GPU",
    }
    return DoesNotFit(
        f"nothing in the inventory can run this; {obstacle.limit} binds: the nearest is {candidate.name}: "
        f"{obstacle.text}{by}",
        hints[obstacle.limit],
    )
