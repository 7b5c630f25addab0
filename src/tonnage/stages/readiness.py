"""What can be done now: tasks wait for facts, and of those that wait for nothing more the first is done next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from typing import Any

Task = tuple[Any, ...]  # compared as a tuple: the smallest is done first


class Readiness:
    """Facts of a group may come before the tasks that need them, and are forgotten together.

    Those without a group are only for tasks that wait for them already.
    """

    def __init__(self) -> None:
        self._missing: dict[Task, set[Hashable]] = {}
        self._waiting: dict[Hashable, list[Task]] = defaultdict(list)
        self._facts: set[Hashable] = set()
        self._groups: dict[Hashable, list[Hashable]] = defaultdict(list)
        self._ready: list[Task] = []

    def add(self, task: Task, facts: Iterable[Hashable]) -> None:
        missing = {fact for fact in facts if fact not in self._facts}
        if not missing:
            heappush(self._ready, task)
            return
        self._missing[task] = missing
        for fact in missing:
            self._waiting[fact].append(task)

    def happen(self, fact: Hashable, group: Hashable = None) -> None:
        if group is not None:
            self._facts.add(fact)
            self._groups[group].append(fact)
        for task in self._waiting.pop(fact, ()):
            self._missing[task].discard(fact)
            if not self._missing[task]:
                del self._missing[task]
                heappush(self._ready, task)

    def forget(self, group: Hashable) -> None:
        self._facts.difference_update(self._groups.pop(group, ()))

    def __contains__(self, fact: Hashable) -> bool:
        return fact in self._facts

    def pop(self) -> Task | None:
        return heappop(self._ready) if self._ready else None

    @property
    def is_idle(self) -> bool:
        return not self._ready

    @property
    def waits_for(self) -> Hashable | None:
        """One fact that the first of the waiting tasks has not seen; for people."""
        first = min(self._missing, default=None)
        return None if first is None else min(self._missing[first], key=str)
