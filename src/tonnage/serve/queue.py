"""The requests that wait for a model, and which of them run together next. No clock and no processes: pure decisions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from tonnage.serve.configuration import Batching, ModelConfiguration
from tonnage.serve.errors import Busy
from tonnage.serve.requests import Request

MOST_REQUESTS = 10_000  # where a configuration names no limit of its own
MOST_BYTES = 1 << 30


class Reason(StrEnum):
    """Why a batch has the requests that it has."""

    SINGLE = "single"  # this model runs them one by one
    FULL = "full"  # no more rows fit
    PREFERRED = "preferred"  # a size that the configuration asks for
    DELAY = "delay"  # the first had waited long enough
    EMPTY = "empty"  # nobody else was waiting
    SHAPE = "shape"  # the next has other shapes


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that run together, in their order."""

    requests: list[Request]
    rows: int
    reason: Reason


class Queue:
    """First come, first served, within each priority; 1 comes before 2."""

    def __init__(self, configuration: ModelConfiguration) -> None:
        self._configuration = configuration
        self._levels: dict[int, deque[Request]] = {}
        self.waiting = 0
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return self.waiting

    def add(self, request: Request) -> None:
        """Raises `Busy` where too many are waiting."""
        levels = self._configuration.priority_levels
        level = (request.priority or self._configuration.default_priority or 1) if levels else 1
        line = self._levels.get(level)
        if line is None:
            line = self._levels[level] = deque()
            self._levels = dict(sorted(self._levels.items()))
        most = self._configuration.policy_of(level).most_requests or MOST_REQUESTS
        if len(line) >= most:
            raise Busy(
                f"{most} requests are waiting for {self._configuration.name}: its queue is full", "try again later"
            )
        size = request.size
        if self.waiting_bytes + size > MOST_BYTES and self.waiting:
            raise Busy(f"the requests that wait for {self._configuration.name} fill its memory", "try again later")
        line.append(request)
        self.waiting += 1
        self.waiting_bytes += size

    def put_back(self, requests: list[Request]) -> None:
        """In front of all others: they were there before."""
        line = self._levels.setdefault(min(self._levels, default=1), deque())
        for request in reversed(requests):
            line.appendleft(request)
            self.waiting += 1
            self.waiting_bytes += request.size

    def remove(self, request: Request) -> bool:
        """Is it gone from here? It is not where it runs already."""
        for line in self._levels.values():
            try:
                line.remove(request)
            except ValueError:
                continue
            self._taken(request)
            return True
        return False

    def drain(self) -> list[Request]:
        """All of them; nobody waits any more."""
        found = [request for line in self._levels.values() for request in line]
        self._levels.clear()
        self.waiting = self.waiting_bytes = 0
        return found

    def next_batch(self, now: float) -> Batch | float | None:
        """What runs next; or until when to wait for more; None where nobody is waiting."""
        line = next((line for line in self._levels.values() if line), None)
        if line is None:
            return None
        batching = self._configuration.batching
        if batching is None or not self._configuration.has_batches:
            request = line.popleft()
            self._taken(request)
            return Batch([request], request.rows, Reason.SINGLE)
        count, rows, reason = self._fitting(line, batching)
        if reason is Reason.EMPTY and batching.most_delay_seconds:
            until = line[0].arrived + batching.most_delay_seconds
            if now < until:
                return until
            reason = Reason.DELAY
        taken = [line.popleft() for _ in range(count)]
        for request in taken:
            self._taken(request)
        return Batch(taken, rows, reason)

    def _fitting(self, line: deque[Request], batching: Batching) -> tuple[int, int, Reason]:
        """How many of the first go together. Where sizes are preferred, the largest of them that can be had."""
        most, first = self._configuration.max_batch_size, line[0]
        count, rows, preferred = 0, 0, (0, 0)
        reason = Reason.EMPTY
        for request in line:
            if request.key != first.key:
                reason = Reason.SHAPE
                break
            if rows + request.rows > most:
                reason = Reason.FULL
                break
            count, rows = count + 1, rows + request.rows
            if rows in batching.preferred_sizes:
                preferred = (count, rows)
        if rows == most:
            reason = Reason.FULL
        if preferred[0] and reason is not Reason.FULL:
            return *preferred, Reason.PREFERRED
        return count, rows, reason

    def _taken(self, request: Request) -> None:
        self.waiting -= 1
        self.waiting_bytes -= request.size
