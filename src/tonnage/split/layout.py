"""Where the operations of a network run: what tells one distribution from another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The device (its position in the fabric) of each operation. A team holds one stage, and its devices take turns with
    samples; the one in `places` comes first."""

    places: Places
    teams: tuple[Places, ...] = ()  # of several devices

    @property
    def devices(self) -> set[int]:
        return {*self.places, *(device for team in self.teams for device in team)}

    def moved(self, where: Sequence[int]) -> Layout:
        """With the device `where[x]` in the place of each device x."""
        places = tuple(where[place] for place in self.places)
        return Layout(places, tuple(tuple(where[device] for device in team) for team in self.teams))
