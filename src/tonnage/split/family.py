"""A collection of downward-closed sets as arrays, with what solvers ask about them: sums over their groups, open nets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tonnage.split.problem import Floats, Problem

Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
_BLOCK = 4096  # sets whose bits are unpacked at once


class Family:
    """Sets in the order of `key`, a sum over groups, so that those between two values stand together; a set stands after
    all of its parts."""

    def __init__(self, problem: Problem, sets: Sequence[int], key: Floats) -> None:
        self.problem = problem
        width = max((problem.size + 63) // 64, 1)
        packed = b"".join(each.to_bytes(8 * width, "little") for each in sets)
        rows = np.frombuffer(packed, dtype="<u8").reshape(len(sets), width)
        sums = self._sums(rows, key[:, None])[:, 0]
        # Sums of equal parts in another order differ in their last digits; those must not decide.
        rough = np.round(sums / max(float(key.sum()), 1e-300) * 2**40)
        sizes = np.array([each.bit_count() for each in sets])
        order = np.lexsort((sizes, rough))
        self.key: Floats = sums[order]
        self.rows: Words = np.ascontiguousarray(rows[order])
        self.words: Words = np.ascontiguousarray(self.rows.T)  # by word, for all sets at once

    @property
    def size(self) -> int:
        return len(self.rows)

    def _sums(self, rows: Words, values: Floats) -> Floats:
        """Of each set, the sums of values over its groups; one column for each column of `values`."""
        found = np.empty((len(rows), values.shape[1]))
        for first in range(0, len(rows), _BLOCK):
            part = np.ascontiguousarray(rows[first : first + _BLOCK])
            bits = np.unpackbits(part.view(np.uint8), axis=1, bitorder="little", count=self.problem.size)
            found[first : first + _BLOCK] = bits @ values
        return found

    @cached_property
    def seconds(self) -> Floats:
        """By class and set: computing of all its groups that can run there."""
        values = np.stack([each.seconds for each in self.problem.classes], axis=1)
        return np.ascontiguousarray(self._sums(self.rows, np.where(np.isfinite(values), values, 0.0)).T)

    @cached_property
    def impossible(self) -> Floats:
        """By class and set: how many of its groups cannot run there."""
        values = np.stack([~np.isfinite(each.seconds) for each in self.problem.classes], axis=1)
        return np.ascontiguousarray(self._sums(self.rows, values.astype(np.float64)).T)

    @cached_property
    def memory_bytes(self) -> Floats:
        return self._sums(self.rows, self.problem.memory_bytes[:, None])[:, 0]

    @cached_property
    def stash_bytes(self) -> Floats:
        return self._optional(self.problem.stash_bytes)

    @cached_property
    def sync_bytes(self) -> Floats:
        return self._optional(self.problem.sync_bytes)

    @cached_property
    def unshared(self) -> Floats:
        return self._optional(self.problem.unshared)

    def _optional(self, values: Floats) -> Floats:
        return self._sums(self.rows, values[:, None])[:, 0] if len(values) else np.zeros(self.size)

    @cached_property
    def net_words(self) -> Words:
        """The members of each net, as bits."""
        words = np.zeros((len(self.problem.nets), self.rows.shape[1]), dtype=np.uint64)
        for index, net in enumerate(self.problem.nets):
            for group in net.members:
                words[index, group >> 6] |= np.uint64(1) << np.uint64(group & 63)
        return words

    @cached_property
    def weights(self) -> Floats:
        """Of each net: there, and back."""
        pairs = [(net.weight, net.back) for net in self.problem.nets]
        return np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)

    @cached_property
    def made_weights(self) -> Floats:
        """Of each net as its maker sees it, to whom several may send back."""
        made = self.weights.copy()
        made[:, 1] *= [net.copies for net in self.problem.nets]
        return made

    @cached_property
    def open_weight(self) -> Floats:
        """By direction and set: nets with members inside and outside it, as their makers see them."""
        found = np.zeros((2, self.size))
        for index, weight in enumerate(self.made_weights):
            touched, held = self.joins(index, self.words, 0)  # beside the empty set
            found += weight[:, None] * (touched & ~held)
        return found

    def open_nets(self, position: int) -> npt.NDArray[np.int64]:
        inside = self.net_words & self.rows[position]
        return np.flatnonzero((inside != 0).any(axis=1) & (inside != self.net_words).any(axis=1))

    def joins(self, net: int, words: Words, position: int) -> tuple[Bools, Bools]:
        """Which sets (by their words) have a member of the net that the set at `position` has not; which have them all."""
        members = self.net_words[net]
        absent = members & ~self.rows[position]
        touched, held = np.zeros(words.shape[1], dtype=np.bool_), np.ones(words.shape[1], dtype=np.bool_)
        for word in np.flatnonzero(members):
            here = words[word] & members[word]
            held &= here == members[word]
            if absent[word]:
                touched |= (here & absent[word]) != 0
        return touched, held

    def contain(self, position: int, where: slice) -> Bools:
        """Which sets contain the one at `position`."""
        found = np.ones(len(self.key[where]), dtype=np.bool_)
        for word in np.flatnonzero(self.rows[position]):
            found &= (self.words[word, where] & self.rows[position, word]) == self.rows[position, word]
        return found

    def contain_at(self, position: int, sets: npt.NDArray[np.int64]) -> Bools:
        """Which of the sets at these positions contain the one at `position`."""
        return np.asarray(((self.rows[sets] & self.rows[position]) == self.rows[position]).all(axis=1))

    def mask(self, position: int) -> int:
        return int.from_bytes(self.rows[position].tobytes(), "little")
