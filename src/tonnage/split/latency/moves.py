"""Small changes of an assignment, tried many times: the loop of the annealing search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tonnage.split.latency.compiled import compiled
from tonnage.split.latency.problem import CPU
from tonnage.split.latency.timing import Floats, Ints, Scratch, Tables, timed


class Groups(NamedTuple):
    """The classes as arrays."""

    of: Ints  # by node
    nodes: Ints
    nodes_start: Ints
    node_size: Floats
    size: Floats  # by group; infinite where no accelerator can have it
    movable: Ints  # those that an accelerator may have
    crew: Ints  # nodes of no cost that feed a group or end behind it, as their groups
    crew_start: Ints


class State(NamedTuple):
    """Where the search stands; changed in place."""

    devices: Ints
    held: Floats  # by accelerator
    best: Ints
    numbers: Ints  # the state of the random numbers
    moved: Ints  # groups of the move that is being tried
    old: Ints  # where they were
    goal: Ints  # and where they go
    marked: Ints  # by group: the last move that took it
    critical: Ints  # places that the latency is made of, the last first; their number at the end
    values: Floats  # latency, cost, least latency


class Pace(NamedTuple):
    """How bold a round of moves is."""

    moves: int
    temperature: float  # in seconds
    work_weight: float  # what a second of work that delays nothing counts
    focus: int  # of 100 moves, how many begin at what the latency depends on


@compiled
def _below(numbers: Ints, limit: int) -> int:
    """A random number below the limit, by Lehmer's generator."""
    numbers[0] = numbers[0] * 48271 % 2147483647
    return int(numbers[0] % limit)


@compiled
def anneal(tables: Tables, groups: Groups, state: State, pace: Pace, memory: float, scratch: Scratch) -> None:
    """One round of moves at one temperature."""
    accelerators = len(state.held)
    for _ in range(pace.moves):
        group = _pick(groups, state, accelerators, pace.focus)
        target = _target(tables, groups, state, group, accelerators)
        origin = state.devices[groups.nodes[groups.nodes_start[group]]]
        if origin == target or groups.size[group] == np.inf:
            continue
        count = _choose(tables, groups, state, group, origin, target)
        state.goal[:count] = target
        count = _make_room(groups, state, count, target, origin, memory)
        if count == 0:
            continue
        _shift(groups, state, count)
        latency, work = timed(tables, state.devices, scratch)
        cost = latency + pace.work_weight * work
        chance = (1 + _below(state.numbers, 1000000)) / 1000000
        if cost <= state.values[1] - pace.temperature * np.log(chance):
            _accept(groups, state, latency, cost, memory, scratch)
        else:
            _restore(groups, state, count)


@compiled
def _accept(groups: Groups, state: State, latency: float, cost: float, memory: float, scratch: Scratch) -> None:
    state.values[0], state.values[1] = latency, cost
    length, place = 0, scratch.cause[-1]
    while place >= 0:
        state.critical[length] = place
        length += 1
        place = scratch.cause[place]
    state.critical[-1] = length
    if latency < state.values[2] and _fits(groups, state, memory):
        state.values[2] = latency
        state.best[:] = state.devices


@compiled
def _pick(groups: Groups, state: State, accelerators: int, focus: int) -> int:
    """Any group, or one that the latency depends on."""
    length = state.critical[-1]
    if length > 0 and _below(state.numbers, 100) < focus:
        place = state.critical[_below(state.numbers, length)]
        if place >= accelerators:
            return int(groups.of[place - accelerators])
        member = _member(groups, state, place)
        if member >= 0:
            return member
    return int(groups.movable[_below(state.numbers, len(groups.movable))])


@compiled
def _member(groups: Groups, state: State, device: int) -> int:
    """A random group of an accelerator, or -1 where a few tries find none."""
    for _ in range(20):
        group = groups.movable[_below(state.numbers, len(groups.movable))]
        if state.devices[groups.nodes[groups.nodes_start[group]]] == device:
            return int(group)
    return -1


@compiled
def _target(tables: Tables, groups: Groups, state: State, group: int, accelerators: int) -> int:
    """Mostly the device of a neighbour, at times any."""
    kind = _below(state.numbers, 10)
    if kind == 0:
        return CPU
    if kind <= 2:
        return _below(state.numbers, accelerators)
    start = groups.nodes_start[group]
    node = groups.nodes[start + _below(state.numbers, groups.nodes_start[group + 1] - start)]
    before = tables.inputs_start[node + 1] - tables.inputs_start[node]
    after = tables.consumers_start[node + 1] - tables.consumers_start[node]
    if before + after == 0:
        return _below(state.numbers, accelerators)
    pick = _below(state.numbers, before + after)
    if pick < before:
        return int(state.devices[tables.inputs[tables.inputs_start[node] + pick]])
    return int(state.devices[tables.consumers[tables.consumers_start[node] + pick - before]])


@compiled
def _choose(tables: Tables, groups: Groups, state: State, group: int, origin: int, target: int) -> int:
    """Which groups move: one, all that follow it on its device, all that it needs there, or the whole device."""
    state.numbers[1] += 1  # a new mark for this move
    count = _take(state, 0, group, state.numbers[1])
    kind = _below(state.numbers, 8)
    if kind == 7 and origin >= 0:
        for node in range(len(groups.of)):
            if state.devices[node] == origin:
                count = _take(state, count, groups.of[node], state.numbers[1])
    elif kind >= 2:
        limit = len(groups.size) if origin >= 0 else 1 + _below(state.numbers, 8)
        count = _spread(tables, groups, state, count, origin, kind % 2 == 0, limit)
    if kind % 3 != 0:
        count = _call_crew(groups, state, count, target)
    return count


@compiled
def _take(state: State, count: int, group: int, mark: int) -> int:
    if state.marked[group] == mark:
        return count
    state.marked[group] = mark
    state.moved[count] = group
    return count + 1


@compiled
def _spread(tables: Tables, groups: Groups, state: State, count: int, origin: int, forward: bool, limit: int) -> int:
    """Add what is reached along the edges on the same device."""
    starts = tables.consumers_start if forward else tables.inputs_start
    others = tables.consumers if forward else tables.inputs
    done = 0
    while done < count and count < limit:
        group = state.moved[done]
        done += 1
        for at in range(groups.nodes_start[group], groups.nodes_start[group + 1]):
            node = groups.nodes[at]
            for where in range(starts[node], starts[node + 1]):
                if state.devices[others[where]] == origin:
                    count = _take(state, count, groups.of[others[where]], state.numbers[1])
    return count


@compiled
def _call_crew(groups: Groups, state: State, count: int, target: int) -> int:
    for done in range(count):
        group = state.moved[done]
        for at in range(groups.crew_start[group], groups.crew_start[group + 1]):
            other = groups.crew[at]
            if state.devices[groups.nodes[groups.nodes_start[other]]] != target:
                count = _take(state, count, other, state.numbers[1])
    return count


@compiled
def _make_room(groups: Groups, state: State, count: int, target: int, origin: int, memory: float) -> int:
    """The number of groups that move, with one that leaves the target where memory asks for it; 0 if they do not fit."""
    if target < 0:
        return count
    held = state.held[target]
    for done in range(count):
        held += groups.size[state.moved[done]]
    if held <= memory:
        return count
    other = _member(groups, state, target)
    if other < 0 or held - groups.size[other] > memory:
        return 0
    taken = _take(state, count, other, state.numbers[1])
    if taken == count:
        return 0
    back = origin >= 0 and state.held[origin] - groups.size[state.moved[0]] + groups.size[other] <= memory
    state.goal[count] = origin if back else CPU
    return taken


@compiled
def _shift(groups: Groups, state: State, count: int) -> None:
    for done in range(count):
        group = state.moved[done]
        state.old[done] = state.devices[groups.nodes[groups.nodes_start[group]]]
        _put(groups, state, group, state.goal[done])


@compiled
def _fits(groups: Groups, state: State, memory: float) -> bool:
    """Sums anew, since sizes that were added and taken away many times leave a rest."""
    state.held[:] = 0.0
    for node in range(len(state.devices)):
        if state.devices[node] >= 0:
            state.held[state.devices[node]] += groups.node_size[node]
    return bool(state.held.max() <= memory)


@compiled
def _restore(groups: Groups, state: State, count: int) -> None:
    for done in range(count):
        _put(groups, state, state.moved[done], state.old[done])


@compiled
def _put(groups: Groups, state: State, group: int, target: int) -> None:
    first = groups.nodes_start[group]
    origin = state.devices[groups.nodes[first]]
    if origin >= 0:
        state.held[origin] -= groups.size[group]
    if target >= 0:
        state.held[target] += groups.size[group]
    for at in range(first, groups.nodes_start[group + 1]):
        state.devices[groups.nodes[at]] = target
