"""Who comes to whom: tasks join others that run alone on a type of GPU, where both together are worth more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.allocate.speeds import Floats, Ints

_NOBODY = (-1, -1, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Tasks, what a step of each is worth on this type of GPU, and what is lost if it leaves where it is now."""

    tasks: Ints
    classes: Ints
    rates: Floats
    given_up: Floats
    partners: Ints  # with whom each has run so far; -1: with nobody


def join(guests: Group, hosts: Group, alone: Floats, paired: Floats) -> list[tuple[int, int]]:
    """Pairs of guest and host. A task may be in both groups.

    First stay together those who are, then guests come in the order of what is gained, each to the host that suits it best
    of those left. `alone` and `paired` are the speeds of the classes on this type.
    """
    joining = _Joining(guests, hosts, alone, paired)
    joining.keep()
    joining.match()
    return joining.pairs


class _Joining:
    def __init__(self, guests: Group, hosts: Group, alone: Floats, paired: Floats) -> None:
        self.guests, self.shelf = guests, _Shelf(hosts, len(alone))
        self.own = np.where(paired > 0, paired, -np.inf)  # guest, host
        self.slowing = paired.T - alone  # of the host
        self.pairs: list[tuple[int, int]] = []

    def keep(self) -> None:
        for number in np.flatnonzero(self.guests.partners >= 0).tolist():
            self._try(number, *self.shelf.find(int(self.guests.partners[number])))

    def match(self) -> None:
        gained = self._gains(slice(None)).max(axis=1) - self.guests.given_up
        for number in np.argsort(-gained, kind="stable")[: int((gained > 0).sum())].tolist():
            best = int(self._gains(number).argmax())
            self._try(number, *self.shelf.top(best, but=int(self.guests.tasks[number])))

    def _gains(self, which: int | slice) -> Floats:
        """Of guests, with the top host of each class."""
        classes, rates = self.guests.classes[which], self.guests.rates[which]
        return np.asarray(
            self.own[classes] * rates[..., None] + self.slowing[classes] * self.shelf.rates + self.shelf.missing
        )

    def _try(self, number: int, host: int, host_class: int, host_rate: float) -> None:
        guest, mine = int(self.guests.tasks[number]), self.guests.classes[number]
        if host < 0 or guest in self.shelf.taken:
            return
        gain = self.own[mine, host_class] * self.guests.rates[number] + self.slowing[mine, host_class] * host_rate
        if gain > self.guests.given_up[number]:
            self.pairs.append((guest, host))
            self.shelf.take(guest, host)


class _Shelf:
    """Hosts by class. On top is the one whose steps are worth least, since its guest slows it."""

    def __init__(self, hosts: Group, classes: int) -> None:
        self.taken: set[int] = set()
        self.rates = np.zeros(classes)  # of the top of each class
        self.missing = np.zeros(classes)  # minus infinity where none is left
        order = np.argsort(-hosts.rates, kind="stable")
        rows = zip(*(each[order].tolist() for each in (hosts.tasks, hosts.classes, hosts.rates)), strict=True)
        self._hosts: dict[int, tuple[int, int, float]] = {row[0]: row for row in rows}
        self._stacks: list[list[tuple[int, int, float]]] = [[] for _ in range(classes)]
        for row in self._hosts.values():
            self._stacks[row[1]].append(row)
        for number in range(classes):
            self._look(number)

    def find(self, host: int) -> tuple[int, int, float]:
        """Its number, class and rate; -1 if it is not there."""
        return self._hosts.get(host, _NOBODY) if host not in self.taken else _NOBODY

    def top(self, number: int, *, but: int) -> tuple[int, int, float]:
        return next(
            (row for row in reversed(self._stacks[number]) if row[0] != but and row[0] not in self.taken), _NOBODY
        )

    def take(self, guest: int, host: int) -> None:
        self.taken |= {guest, host}
        for task in (guest, host):
            if task in self._hosts:
                self._look(self._hosts[task][1])

    def _look(self, number: int) -> None:
        stack = self._stacks[number]
        while stack and stack[-1][0] in self.taken:
            stack.pop()
        self.rates[number], self.missing[number] = (stack[-1][2], 0.0) if stack else (0.0, -np.inf)
