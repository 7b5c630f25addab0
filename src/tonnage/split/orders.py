"""Orders of the groups along which few nets are open at a time: chains along them are the first good distributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tonnage.split.problem import Floats, Problem


def good_orders(problem: Problem, generator: np.random.Generator, count: int) -> Iterator[list[int]]:
    """Up to `count` topological orders, the most promising first, each made in another way."""
    yield list(range(problem.size))
    turned = backwards(problem)
    yield greedy_order(problem)
    yield greedy_order(turned)[::-1]
    yield depth_first(problem)
    yield depth_first(turned)[::-1]
    for number in range(count - 5):
        noise = generator.exponential(size=problem.size)
        yield greedy_order(problem, noise) if number % 2 == 0 else greedy_order(turned, noise)[::-1]


def backwards(problem: Problem) -> Problem:
    """The same groups with every order turned round."""
    return replace(problem, followers=problem.leaders)


def order_through(problem: Problem, stage_of: Sequence[int]) -> list[int]:
    """A good order that does all groups of a stage before those of the next; stages must be contiguous."""
    rank = {group: number for number, group in enumerate(greedy_order(problem))}
    return sorted(range(problem.size), key=lambda group: (stage_of[group], rank[group]))


def greedy_order(problem: Problem, noise: Floats | None = None) -> list[int]:
    """Always the group next that opens least and closes most; of equals the one that became ready last. Noise of about 1
    for each group blurs the choice."""
    nets_of: list[list[int]] = [[] for _ in range(problem.size)]
    for index, net in enumerate(problem.nets):
        for group in net.members:
            nets_of[group].append(index)
    weights = [net.weight + net.back for net in problem.nets]
    blur = np.zeros(problem.size) if noise is None or not weights else 0.3 * np.mean(weights) * noise
    left = [len(net.members) for net in problem.nets]
    waiting = [len(each) for each in problem.leaders]
    since = {group: 0 for group in range(problem.size) if not waiting[group]}

    def opens(group: int) -> float:
        change = 0.0
        for index in nets_of[group]:
            if left[index] == len(problem.nets[index].members):
                change += weights[index]
            elif left[index] == 1:
                change -= weights[index]
        return change

    order: list[int] = []
    while since:
        chosen = min(since, key=lambda group: (opens(group) + blur[group], -since[group], group))
        del since[chosen]
        order.append(chosen)
        for index in nets_of[chosen]:
            left[index] -= 1
        for follower in problem.followers[chosen]:
            waiting[follower] -= 1
            if not waiting[follower]:
                since[follower] = len(order)
    return order


def depth_first(problem: Problem) -> list[int]:
    """One branch to its end before the next begins."""
    waiting = [len(each) for each in problem.leaders]
    ready = [group for group in range(problem.size - 1, -1, -1) if not waiting[group]]
    order: list[int] = []
    while ready:
        group = ready.pop()
        order.append(group)
        for follower in reversed(problem.followers[group]):
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return order
