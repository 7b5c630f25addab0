"""The contiguous solver against all assignments of small networks, on devices of several classes."""

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.split.bounds import load_bound
from tonnage.split.chains import best_chain
from tonnage.split.coarsen import coarsen
from tonnage.split.cut_bound import cut_bound
from tonnage.split.family import Family
from tonnage.split.lattice import all_sets, groups_in, prefixes
from tonnage.split.prices import best_prices
from tonnage.split.problem import DeviceClass, Net, Problem
from tonnage.split.throughput import split_for_throughput


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    size = draw(st.integers(1, 6))
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    edges = [pair for pair in pairs if draw(st.booleans())]
    followers = tuple(tuple(b for a, b in edges if a == group) for group in range(size))
    numbers = st.sampled_from([0.0, 1.0, 2.0, 3.5])
    nets = []
    for group in range(size):
        members = tuple(sorted({group, *followers[group]}))
        if len(members) > 1:
            nets.append(Net(members=members, weight=draw(numbers), back=draw(st.sampled_from([0.0, 0.0, 1.5]))))
    work = [draw(numbers) for _ in range(size)]
    memory = np.array([draw(st.sampled_from([0.0, 1.0, 2.0])) for _ in range(size)])
    classes = []
    for index in range(draw(st.integers(1, 2))):
        speed = draw(st.sampled_from([1.0, 2.0, 4.0]))
        seconds = np.array([draw(st.sampled_from([each / speed, each / speed, each])) for each in work])
        unit = draw(st.sampled_from([0.0, 0.5, 1.0]))
        classes.append(
            DeviceClass(
                name=f"class{index}",
                devices=tuple(f"class{index}-{number}" for number in range(draw(st.integers(1, 2)))),
                seconds=seconds,
                seconds_per_unit=unit,
                seconds_per_unit_out=draw(st.sampled_from([unit, 2 * unit])),
                memory_bytes=draw(st.sampled_from([inf, 3.0, 5.0])),
            )
        )
    return Problem(
        members=tuple((group,) for group in range(size)),
        followers=followers,
        nets=tuple(nets),
        memory_bytes=memory,
        classes=tuple(classes),
        overlaps=draw(st.booleans()),
        passes_on=draw(st.booleans()),
    )


def load(problem: Problem, groups: set[int], device_class: DeviceClass, later: set[int]) -> float:
    """Of a device with these groups; `later` are those on devices after it."""
    if sum(problem.memory_bytes[group] for group in groups) > device_class.memory_bytes:
        return inf
    seconds = sum(device_class.seconds[group] for group in groups)
    incoming = outgoing = 0.0
    for net in problem.nets:
        inside = groups & set(net.members)
        if not inside or inside == set(net.members):
            continue
        earlier = set(net.members) - groups - later
        # What a net of earlier devices brings comes in, and gradients go back; else it is the other way round.
        incoming += device_class.seconds_per_unit * (net.weight if earlier else net.back)
        outgoing += device_class.seconds_per_unit_out * (net.back if earlier else net.weight)
        if problem.passes_on and earlier and later & set(net.members):
            outgoing += device_class.seconds_per_unit_out * net.weight
    return max(seconds, incoming, outgoing) if problem.overlaps else seconds + incoming + outgoing


def best_of_all(problem: Problem) -> float:
    """Every order of devices, every assignment that follows it."""
    devices = [each for each in problem.classes for _ in each.devices]
    best = inf
    for stages in product(range(len(devices)), repeat=problem.size):
        if any(stages[a] > stages[b] for a in range(problem.size) for b in problem.followers[a]):
            continue
        used = sorted(set(stages))
        parts = [{group for group in range(problem.size) if stages[group] == stage} for stage in used]
        best = min(best, _best_classes(problem, parts))
    return best


def _best_classes(problem: Problem, parts: list[set[int]]) -> float:
    best = inf
    for kinds in product(range(len(problem.classes)), repeat=len(parts)):
        if any(kinds.count(kind) > each.count for kind, each in enumerate(problem.classes)):
            continue
        loads = [
            load(problem, part, problem.classes[kind], set().union(*parts[number + 1 :]))
            for number, (part, kind) in enumerate(zip(parts, kinds, strict=True))
        ]
        best = min(best, max(loads))
    return best


@settings(max_examples=150, deadline=None)
@given(problems())
def test_no_assignment_is_better_and_the_bound_says_so(problem: Problem) -> None:
    expected = best_of_all(problem)
    answer = split_for_throughput(problem)
    if expected == inf:
        assert answer is None
        return
    assert answer is not None
    assert answer.chain.value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert answer.is_proven


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_bound_by_cuts_is_never_above_the_best(problem: Problem) -> None:
    expected = best_of_all(problem)
    if expected < inf:
        prices = best_prices(problem)
        low = load_bound(problem, prices)
        assert cut_bound(problem, prices, low, 2 * expected + 1, lambda: True) <= expected * (1 + 1e-6) + 1e-12


def test_the_bound_by_cuts_counts_what_every_way_to_cut_must_move() -> None:
    """Eight equal operations in a row, each with an output that takes as long as three of them."""
    chain = Problem(
        members=tuple((group,) for group in range(8)),
        followers=tuple((group + 1,) if group < 7 else () for group in range(8)),
        nets=tuple(Net(members=(group, group + 1), weight=3.0) for group in range(7)),
        memory_bytes=np.zeros(8),
        classes=(DeviceClass(
            name="any", devices=("a", "b", "c", "d"), seconds=np.ones(8), seconds_per_unit=1.0, seconds_per_unit_out=1.0,
        ),),
        overlaps=True,
    )  # fmt: skip
    prices = best_prices(chain)
    assert load_bound(chain, prices) == pytest.approx(2.0)
    assert best_of_all(replace(chain, classes=(replace(chain.classes[0], devices=("a", "b")),))) == 4.0
    assert cut_bound(chain, prices, 2.0, 4.0, lambda: True) == pytest.approx(3.0, rel=0.01)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_coarsening_loses_nothing(problem: Problem) -> None:
    values = []
    for each in (problem, coarsen(problem)):
        prices = best_prices(each)
        sets = all_sets(each, 10_000)
        assert sets is not None
        found = best_chain(Family(each, sets, prices.of_group), prices)
        values.append(inf if found is None else found.value)
    assert values[0] == pytest.approx(values[1], rel=1e-9, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(problems())
def test_every_group_is_in_one_stage(problem: Problem) -> None:
    answer = split_for_throughput(problem)
    if answer is None:
        return
    placed = [position for stage in answer.chain.stages for group in groups_in(stage.groups)
              for position in answer.problem.members[group]]  # fmt: skip
    assert sorted(placed) == list(range(problem.size))


def test_a_chain_along_an_order_is_never_better_than_all_sets() -> None:
    work = np.array([3.0, 1.0, 2.0, 2.0])
    problem = Problem(
        members=((0,), (1,), (2,), (3,)),
        followers=((2,), (3,), (), ()),
        nets=(Net(members=(0, 2), weight=5.0), Net(members=(1, 3), weight=5.0)),
        memory_bytes=np.zeros(4),
        classes=(
            DeviceClass(name="x", devices=("x0", "x1"), seconds=work, seconds_per_unit=1.0, seconds_per_unit_out=1.0),
        ),
    )
    prices = best_prices(problem)
    along = best_chain(Family(problem, list(prefixes(range(4))), prices.of_group), prices)
    every = best_chain(Family(problem, all_sets(problem, 100) or [], prices.of_group), prices)
    assert along is not None
    assert every is not None
    assert along.value == 8.0  # all on one
    assert every.value == 5.0  # one branch each, nothing cut
