"""One sentence about what to try first."""

from __future__ import annotations

from tonnage.profile.indicators import Indicators
from tonnage.units import format_seconds

_MUCH = 0.1  # of a step
_PINNED = 0.5


def hint_for(found: Indicators) -> str:
    """What takes time without need; nothing if nothing does."""
    copies = found.h2d_seconds + found.d2h_seconds
    if found.share(found.data_wait_seconds) >= _MUCH:
        return _data(found)
    if found.device == "cuda" and found.share(copies) >= _MUCH and found.pinned_share < _PINNED:
        return (
            f"{found.share(copies):.0%} of a step are copies from pageable memory: "
            "pin_memory=True in the data loader and .to(device, non_blocking=True) make them faster and hide them"
        )
    if found.device == "cuda" and found.share(copies) >= _MUCH:
        return (
            f"{found.share(copies):.0%} of a step are copies that nothing hides: "
            "copy the next batch while this one is computed"
        )
    if found.device == "cuda" and found.share(found.idle_seconds) >= 2 * _MUCH:
        return (
            f"the GPU has nothing to do for {found.share(found.idle_seconds):.0%} of a step: the host is too slow for it; "
            "a larger batch, torch.compile or CUDA graphs help, and fewer .item() and print calls"
        )
    return ""


def _data(found: Indicators) -> str:
    wait = f"{format_seconds(found.data_wait_seconds)} of a step ({found.share(found.data_wait_seconds):.0%}) wait for data"
    if not found.loader_workers:
        return f"{wait}: the data loader has no workers; give it num_workers"
    return f"{wait}: {found.loader_workers} loader workers are too few, or what they do is too slow"
