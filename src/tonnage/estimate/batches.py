"""How large the batch may be: the largest that fits on each GPU, found on interpolated Traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tonnage.estimate.estimator import Estimator
from tonnage.estimate.memory import context_bytes
from tonnage.hardware import Gpu
from tonnage.program.trace import Trace

LARGEST_SEARCHED = 1 << 20


def format_batch(batch: int | None) -> str:
    """The largest batch for people; where the search ended, more may fit."""
    if batch is None:
        return ""
    return f"{batch:,}" if batch < LARGEST_SEARCHED else f"{batch:,} or more"


class BatchSearch:
    """Looks for the largest batch on any GPU; evaluations are shared between GPUs of one architecture."""

    def __init__(self, trace_at: Callable[[int], Trace]) -> None:
        self._trace_at = trace_at
        self._estimators: dict[int, Estimator] = {}

    def largest(self, gpu: Gpu) -> int:
        """0 if not even a single sample fits."""
        low, high = 0, LARGEST_SEARCHED + 1  # `low` fits, `high` does not
        for guess in self._guesses(gpu):
            if low < guess < high:
                low, high = (guess, high) if self._fits(guess, gpu) else (low, guess)
            if high - low == 1:
                return low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle, gpu) else (low, middle)
        return low

    def _guesses(self, gpu: Gpu) -> Iterator[int]:
        """Memory grows almost linearly: where the line through two batches meets the limit, and close around it."""
        capacity = gpu.usable_bytes
        near, far = 1, 64
        for _ in range(4):
            at_near, at_far = self._device_bytes(near, gpu), self._device_bytes(far, gpu)
            slope = (at_far - at_near) / (far - near)
            if slope <= 0:
                yield LARGEST_SEARCHED
                return
            guess = min(max(int(near + (capacity - at_near) / slope), 1), LARGEST_SEARCHED)
            yield guess
            yield guess + 1
            yield max(guess - 1, 1)
            if guess in (near, far):
                break
            near, far = sorted((guess, far if abs(guess - far) < abs(guess - near) else near))
        for distance in (2, 4, 8, 16, 64, 256):
            yield guess + distance
            yield max(guess - distance, 1)

    def _device_bytes(self, batch: int, gpu: Gpu) -> int:
        estimator = self._estimator(batch)
        reserved = estimator.requests(gpu).without_limit.peak_reserved_bytes
        return reserved + context_bytes(estimator.trace, gpu)

    def _fits(self, batch: int, gpu: Gpu) -> bool:
        return self._estimator(batch).fits(gpu)

    def _estimator(self, batch: int) -> Estimator:
        if batch not in self._estimators:
            self._estimators[batch] = Estimator(self._trace_at(batch))
        return self._estimators[batch]
