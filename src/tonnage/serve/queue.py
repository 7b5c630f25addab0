"""The requests that wait for a model, and which of them run together next. No clock and no processes: pure decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tonnage.serve.configuration import Batching, ModelConfiguration, QueuePolicy
from tonnage.serve.errors import Busy
from tonnage.serve.requests import Request

MOST_REQUESTS = 10_000  # where a configuration names no limit of its own
_MOST_LEVELS = 64  # that are kept although nobody waits in them


class Reason(StrEnum):
    """Why a batch has the requests that it has."""

    SINGLE = "single"  # this model runs them one by one
    FULL = "full"  # no more rows fit
    PREFERRED = "preferred"  # a size that the configuration asks for
    DELAY = "delay"  # the first had waited long enough
    EMPTY = "empty"  # nobody else was waiting
    SHAPE = "shape"  # the next has other shapes
    AGAIN = "again"  # what ran together failed, so that each runs alone


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that run together, in their order."""

    requests: list[Request]
    rows: int
    reason: Reason


class _Level:
    """The requests of one priority: those that are late, where the policy is to delay them, come after the others."""

    __slots__ = ("late", "line", "most", "policy")

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy, self.most = policy, policy.most_requests or MOST_REQUESTS
        self.line: deque[Request] = deque()
        self.late: deque[Request] = deque()


class Queue:
    """First come, first served, within each priority; 1 comes before 2."""

    def __init__(self, configuration: ModelConfiguration) -> None:
        self._configuration = configuration
        self._batching = configuration.batching if configuration.has_batches else None
        self._again: deque[Request] = deque()
        self._levels: dict[int, _Level] = {}
        self.waiting = 0

    def __len__(self) -> int:
        return self.waiting

    def add(self, request: Request) -> QueuePolicy:
        """Returns how long it may wait; raises `Busy` where too many are waiting."""
        number = self._number(request.priority) if self._configuration.priority_levels else 1
        level = self._levels.get(number) or self._new_level(number)
        if len(level.line) + len(level.late) >= level.most:
            raise Busy(
                f"{level.most} requests are waiting for {self._configuration.name}: its queue is full",
                "try again later",
            )
        request.priority = number
        request.is_waiting = True
        level.line.append(request)
        self.waiting += 1
        return level.policy

    def put_back(self, requests: list[Request]) -> None:
        """In front of all others, since they were there before; each runs alone."""
        self._again.extend(requests)
        for request in requests:
            request.is_waiting = True
        self.waiting += len(requests)

    def remove(self, request: Request) -> bool:
        """Is it gone from here? It is not where it runs already."""
        if not request.is_waiting:
            return False
        line = next(line for line in self._lines() if request in line)
        line.remove(request)
        self._taken(request)
        return True

    def delay(self, request: Request) -> None:
        """It is late: the others of its priority come first. One that was put back runs next anyway."""
        level = self._levels.get(request.priority)
        if request.is_waiting and level is not None and request in level.line:
            level.line.remove(request)
            level.late.append(request)

    def drain(self) -> list[Request]:
        """All of them; nobody waits any more."""
        found = [request for line in self._lines() for request in line]
        for request in found:
            request.is_waiting = False
        self._again.clear()
        self._levels.clear()
        self.waiting = 0
        return found

    def next_batch(self, now: float) -> Batch | float | None:
        """What runs next; or until when to wait for more; None where nobody is waiting."""
        if not self.waiting:
            return None
        line = self._again or self._first_line()
        if self._batching is None or line is self._again:
            request = line.popleft()
            self._taken(request)
            return Batch([request], request.rows, Reason.AGAIN if line is self._again else Reason.SINGLE)
        count, rows, reason = self._fitting(line, self._batching)
        if reason is Reason.EMPTY and self._batching.most_delay_seconds:
            until = line[0].arrived + self._batching.most_delay_seconds
            if now < until:
                return until
            reason = Reason.DELAY
        taken = [line.popleft() for _ in range(count)]
        for request in taken:
            self._taken(request)
        return Batch(taken, rows, reason)

    def _number(self, priority: int) -> int:
        """As Triton has it: what is no level is the default one."""
        is_level = 1 <= priority <= self._configuration.priority_levels
        return priority if is_level else self._configuration.default_priority or 1

    def _new_level(self, number: int) -> _Level:
        """Levels are numbers that clients choose, of which there may be very many: those without requests go."""
        if len(self._levels) >= _MOST_LEVELS:
            self._levels = {key: each for key, each in self._levels.items() if each.line or each.late}
        level = self._levels[number] = _Level(self._configuration.policy_of(number))
        self._levels = dict(sorted(self._levels.items()))
        return level

    def _lines(self) -> Iterator[deque[Request]]:
        """In the order in which they are served."""
        yield self._again
        for level in self._levels.values():
            yield level.line
            yield level.late

    def _first_line(self) -> deque[Request]:
        for level in self._levels.values():
            if level.line:
                return level.line
            if level.late:
                return level.late
        raise AssertionError("somebody waits in none of the lines")

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
        request.is_waiting = False
        self.waiting -= 1
