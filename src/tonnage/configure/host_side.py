"""What the host adds to a step: copies over the link, and waiting for the data loader."""

from __future__ import annotations

import math

import numpy as np

from tonnage.estimate.copies import CopyModel
from tonnage.hardware import find_gpu
from tonnage.profile.indicators import Indicators

_COPIES = CopyModel()
_NOTICEABLE = 0.02  # share of a step below which waiting for data is what asking a queue costs


def h2d_seconds(indicators: Indicators, host_bytes_second: float, pinned: bool) -> float:
    """The copies to the GPU over another link, with the memory they come from pinned or as it was. What kernels hide
    takes no time in the indicators, and none here."""
    if not indicators.h2d_seconds:
        return 0.0
    share, size = indicators.pinned_share, float(indicators.h2d_bytes)
    here = _seconds_byte(size, share, _source_link(indicators), _COPIES.pageable_h2d)
    there = _seconds_byte(size, 1.0 if pinned else share, host_bytes_second, _COPIES.pageable_h2d)
    return indicators.h2d_seconds * there / here


def d2h_seconds(indicators: Indicators, host_bytes_second: float) -> float:
    """Results come back into memory that nobody pins."""
    if not indicators.d2h_seconds:
        return 0.0
    size = float(indicators.d2h_bytes)
    here = _seconds_byte(size, 0.0, _source_link(indicators), _COPIES.pageable_d2h)
    return indicators.d2h_seconds * _seconds_byte(size, 0.0, host_bytes_second, _COPIES.pageable_d2h) / here


def _source_link(indicators: Indicators) -> float:
    gpu = find_gpu(indicators.gpu)
    return float(gpu.cpu_link_bytes_second or gpu.pcie_bytes_second)


def _seconds_byte(size: float, pinned_share: float, link: float, pageable: tuple[tuple[float, float], ...]) -> float:
    pinned_rate = link * _COPIES.link_share
    sizes, rates = zip(*pageable, strict=True)
    staged = float(np.interp(math.log(max(size, 1.0)), np.log(sizes), rates))
    return pinned_share / pinned_rate + (1 - pinned_share) / min(pinned_rate, staged)


def loading_seconds(indicators: Indicators) -> float:
    """What one core works on loading the data of a step.

    Where the loop waits for its workers, all of them are busy all the time. Where it does not, loading is what the
    processors do beside the loop itself, which takes one core.
    """
    workers = indicators.loader_workers or 0
    wait, step = indicators.data_wait_seconds, indicators.step_seconds
    if not workers:
        return wait
    if wait > _NOTICEABLE * step:
        return workers * step
    return max((indicators.cpu_cores_used or 0.0) - 1.0, 0.0) * step


def wait_seconds(loading: float, workers: int, cores_each: int, busy_seconds: float) -> float:
    """How long the loop waits in each step; workers that find no core do not help."""
    if not workers:
        return loading
    at_once = min(workers, max(cores_each - 1, 1))
    return max(loading / at_once - busy_seconds, 0.0)


def workers_wanted(loading: float, busy_seconds: float) -> int:
    """As many as load a step while the one before it computes."""
    return math.ceil(loading / busy_seconds - 1e-9) if busy_seconds > 0 else 0
