"""Finds links that several ways share: two transfers at once that together reach less than the sum of each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from tonnage.errors import TonnageError
from tonnage.stages.measuring import AsksAgent, Effort, Pair, Say, Seen

CONTENDED_BELOW = 0.8  # of the sum; two transfers that share all they have reach 0.5
_MOST_REPEATS = 3
_LONGER = 3  # than a transfer alone, so that those of slow agents overlap
SENDS, RECEIVES, NETWORK = "sends", "receives", "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several transfers at once."""

    shared_by: str  # what all have in common: one node `sends`, one node `receives`, or only the `network`
    pairs: tuple[Pair, ...]
    alone_bytes_second: float  # the sum of each by itself
    together_bytes_second: float

    @property
    def is_contended(self) -> bool:
        return self.together_bytes_second < CONTENDED_BELOW * self.alone_bytes_second

    @property
    def node(self) -> str:
        """The one that all pairs have in common."""
        return self.pairs[0][1 if self.shared_by == RECEIVES else 0]

    @property
    def sentence(self) -> str:
        share = self.together_bytes_second / self.alone_bytes_second
        named = " and ".join("->".join(pair) for pair in self.pairs)
        what = {
            SENDS: f"the way out of {self.node} is shared",
            RECEIVES: f"the way into {self.node} is shared",
            NETWORK: "the network between them is shared",
        }[self.shared_by]
        return f"{named} at once reach {share:.0%} of the sum of both alone: {what}"


def see_contention(agents: Mapping[str, AsksAgent], seen: Seen, effort: Effort, say: Say) -> list[Together]:
    """For each node two transfers out of it and two into it, and pairs of nodes that have nothing in common."""
    found = []
    for shared_by, pairs in _experiments(seen):
        say(f"at once: {', '.join('->'.join(pair) for pair in pairs)}")
        together = _try(agents, pairs, effort)
        if together is not None:
            alone = sum(seen.links[pair].bandwidth_bytes_second.median for pair in pairs)
            found.append(
                Together(shared_by=shared_by, pairs=pairs, alone_bytes_second=alone, together_bytes_second=together)
            )
    return found


def _experiments(seen: Seen) -> list[tuple[str, tuple[Pair, ...]]]:
    names = list(seen.nodes)
    found: list[tuple[str, tuple[Pair, ...]]] = []
    for number, node in enumerate(names):
        others = [names[(number + step) % len(names)] for step in (1, 2)]
        if len(names) > 2:
            found.append((SENDS, tuple((node, other) for other in others)))
            found.append((RECEIVES, tuple((other, node) for other in others)))
    found += [
        (NETWORK, ((names[at], names[at + 1]), (names[at + 2], names[at + 3]))) for at in range(0, len(names) - 3, 4)
    ]
    return [(kind, pairs) for kind, pairs in found if all(pair in seen.links for pair in pairs)]


def _try(agents: Mapping[str, AsksAgent], pairs: Sequence[Pair], effort: Effort) -> float | None:
    """The sum of their bandwidths, the median of those repeats in which no agent fails; None where there is none."""
    sums, seconds = [], effort.transfer_seconds * _LONGER
    with ThreadPoolExecutor(len(pairs)) as pool:
        for _ in range(min(effort.repeats, _MOST_REPEATS)):
            try:
                found = pool.map(lambda pair: agents[pair[0]].send(agents[pair[1]].address, seconds, 1), pairs)
                sums.append(sum(transfer.bytes_second for transfer in found))
            except TonnageError:
                continue
    return median(sums) if sums else None
