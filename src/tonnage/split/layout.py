"""Where the operations of a network run: what tells one distribution from another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The device (its position in the fabric) of each operation, and for stages that several devices hold, which take turns
    with samples, all of these: the one in `places` first."""

    places: Places
    replicas: tuple[Places, ...] = ()

    @property
    def devices(self) -> set[int]:
        return {*self.places, *(device for holders in self.replicas for device in holders)}

    def moved(self, where: Sequence[int]) -> Layout:
        """With the device `where[x]` in the place of each device x."""
        places = tuple(where[place] for place in self.places)
        return Layout(places, tuple(tuple(where[device] for device in holders) for holders in self.replicas))
