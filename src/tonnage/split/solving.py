"""Files that state their own devices: the best distribution for throughput or latency by their rules, and the front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tonnage.split.chains import Chain, chains_of_each_use
from tonnage.split.check import check_public
from tonnage.split.checked import label
from tonnage.split.distribution import Distribution
from tonnage.split.family import Family
from tonnage.split.fitting import does_not_fit
from tonnage.split.latency.check import broken_rules, latency_of
from tonnage.split.latency.problem import CPU as ON_CPU
from tonnage.split.latency.public import latency_problem
from tonnage.split.latency.solve import solve_latency
from tonnage.split.lattice import all_sets, groups_in, prefixes
from tonnage.split.making import public_problem
from tonnage.split.orders import greedy_order
from tonnage.split.prices import best_prices
from tonnage.split.problem import Problem
from tonnage.split.public_format import ACCELERATOR, CPU, PublicNetwork
from tonnage.split.scattered import split_anywhere
from tonnage.split.throughput import Answer, split_for_throughput

Clock = Callable[[], float]
Place = tuple[int, int]  # class of devices, and which of them
Assignment = dict[str | int, str]
_MOST_SETS = 600
_NEARLY = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class _Found:
    """An assignment with what is proven about its value."""

    assignment: Assignment
    bound: float
    is_proven: bool


def split_public(
    public: PublicNetwork, *, contiguous: bool = True, seconds: float = 60.0, clock: Clock
) -> Distribution:
    """The distribution with the largest throughput by the rules of the public format."""
    end = clock() + seconds
    answer = _contiguous(public, lambda: clock() < end)
    found = _Found(
        _assignment(public, answer.problem, _places(answer.problem, answer.chain)), answer.bound, answer.is_proven
    )
    if not contiguous:
        found = _scattered(public, answer, max(end - clock(), 1.0))
    checked = check_public(public, found.assignment, contiguous=contiguous)
    if checked.faults:
        raise AssertionError(f"the solver broke a rule: {checked.faults[0]}")
    return _distribution(public, "throughput", checked.value, found, contiguous=contiguous)


def split_public_for_latency(public: PublicNetwork, *, seconds: float = 60.0, clock: Clock) -> Distribution:
    """The distribution with which one sample is done first, by the rules of the public format."""
    end = clock() + seconds
    problem = latency_problem(public)
    answer = solve_latency(problem, lambda: clock() < end)
    faults = broken_rules(problem, answer.assignment)
    if faults:
        raise AssertionError(f"the solver broke a rule: {faults[0]}")
    assignment = {
        operation.id: f"{CPU}0" if device == ON_CPU else f"{ACCELERATOR}{device}"
        for operation, device in zip(public.network.operations, answer.assignment, strict=True)
    }
    value = latency_of(problem, answer.assignment)
    return _distribution(public, "latency", value, _Found(assignment, answer.bound, answer.proven), contiguous=True)


def public_front(public: PublicNetwork, *, seconds: float = 60.0, clock: Clock) -> list[Distribution]:
    """Distributions that no other one found beats in both latency and throughput, the quickest for one sample first."""
    end = clock() + seconds
    latency = split_public_for_latency(public, seconds=seconds / 2, clock=clock)
    answer = _contiguous(public, lambda: clock() < end)
    candidates = [dict(latency.assignment), *_candidates(public, answer)]
    bounds = {"latency": latency.bound, "throughput": answer.bound}
    points = sorted(
        (tuple(values.values()), number, values)
        for number, values in enumerate(_values(public, each) for each in candidates)
    )
    kept: list[Distribution] = []
    least = float("inf")
    for _, number, values in points:
        if values["throughput"] < least / _NEARLY:
            least = values["throughput"]
            found = _Found(candidates[number], bounds["latency"], values["latency"] <= bounds["latency"] * _NEARLY)
            kept.append(_distribution(public, "latency", values["latency"], found, own_values=values))
    return kept


def _contiguous(public: PublicNetwork, keep_going: Callable[[], bool]) -> Answer:
    asked = public_problem(public)
    answer = split_for_throughput(asked, keep_going=keep_going)
    if answer is None:
        raise does_not_fit(asked, lambda position: label(public.network.operations[position]))
    return answer


def _scattered(public: PublicNetwork, answer: Answer, seconds: float) -> _Found:
    loose = public_problem(public, contiguous=False)
    found = split_anywhere(loose, _places(answer.problem, answer.chain), seconds=seconds)
    places = {
        position: place
        for members, place in zip(found.problem.members, found.places, strict=True)
        for position in members
    }
    return _Found(_assignment(public, loose, places), found.bound, found.is_proven)


def _candidates(public: PublicNetwork, answer: Answer) -> list[Assignment]:
    """The best for throughput, and the best for each number of devices among some sets."""
    problem = answer.problem
    prices = best_prices(problem)
    sets = all_sets(problem, _MOST_SETS) or list({*prefixes(range(problem.size)), *prefixes(greedy_order(problem))})
    chains = [answer.chain, *chains_of_each_use(Family(problem, sets, prices.of_group), prices)]
    return [_assignment(public, problem, _places(problem, chain)) for chain in chains]


def _values(public: PublicNetwork, assignment: Assignment) -> dict[str, float]:
    numbers = [
        int(assignment[each.id].removeprefix(ACCELERATOR)) if assignment[each.id].startswith(ACCELERATOR) else ON_CPU
        for each in public.network.operations
    ]
    latency = latency_of(latency_problem(public), numbers)
    return {"latency": latency, "throughput": check_public(public, assignment, contiguous=True).value}


def _places(problem: Problem, chain: Chain) -> dict[int, Place]:
    """The class and number of the device of each operation, by its position."""
    used: dict[int, int] = {}
    places: dict[int, Place] = {}
    for stage in chain.stages:
        place = (stage.device_class, used.get(stage.device_class, 0))
        used[stage.device_class] = place[1] + stage.replicas
        for group in groups_in(stage.groups):
            places |= dict.fromkeys(problem.members[group], place)
    return places


def _assignment(public: PublicNetwork, problem: Problem, places: Mapping[int, Place]) -> Assignment:
    return {
        operation.id: problem.classes[places[position][0]].devices[places[position][1]]
        for position, operation in enumerate(public.network.operations)
    }


def _distribution(
    public: PublicNetwork,
    target: str,
    value: float,
    found: _Found,
    *,
    contiguous: bool = True,
    own_values: Mapping[str, float] | None = None,
) -> Distribution:
    return Distribution(
        network=public.network.name,
        target=target,
        value=value,
        bound=min(found.bound, value),
        proven_optimal=found.is_proven,
        assignment=found.assignment,
        contiguous=contiguous,
        own_values=own_values or {},
    )
