"""The rules' choice among all candidates of an inventory, checked against the least predicted time of any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tonnage.configure import host_side
from tonnage.configure.answer import Choice, Considered
from tonnage.configure.compute import phases_on
from tonnage.configure.inventory import Candidate, candidates
from tonnage.configure.limits import Obstacle, nothing_fits, too_little_memory, unusable
from tonnage.configure.predict import Prediction, Sizing, configuration, predict
from tonnage.configure.rule_fields import fields_of
from tonnage.configure.rules import Decision, Rules
from tonnage.configure.sizing import all_sizes, size, wanted_bytes
from tonnage.configure.work import Work
from tonnage.hardware import Cluster

TOLERANCE = 0.05  # by which the rules' choice may be slower than the minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """A candidate that can run the program, with what the rules give it."""

    candidate: Candidate
    decision: Decision
    sizing: Sizing
    prediction: Prediction


def choose(work: Work, cluster: Cluster, rules: Rules) -> Choice:
    """Raises `DoesNotFit` where nothing in the inventory can run the program."""
    sized, rejected = _sort_out(work, candidates(cluster, work.most_gpus), rules)
    if not sized:
        raise nothing_fits(rejected)
    chosen, reasons = _by_rules(work, sized)
    best = _minimum(work, sized)
    slower = chosen.prediction.run_seconds.value / best.prediction.run_seconds.value - 1
    overruled = slower > TOLERANCE
    taken = best if overruled else chosen
    if overruled:
        reasons = _overruled(reasons, chosen, taken, slower)
    impossible = [Considered(name=c.name, prediction=None, configuration=None, reason=o.text) for c, o in rejected]
    return Choice(
        configuration=configuration(taken.candidate, taken.sizing),
        candidate=taken.candidate,
        prediction=taken.prediction,
        rules_version=rules.version,
        rules_configuration=configuration(chosen.candidate, chosen.sizing),
        rules_run_seconds=chosen.prediction.run_seconds.value,
        minimum_configuration=configuration(best.candidate, best.sizing),
        minimum_run_seconds=best.prediction.run_seconds.value,
        overruled=overruled,
        reasons=_reasons(taken.decision),
        considered=tuple(_considered(sized, taken, reasons) + impossible),
    )


def _sort_out(
    work: Work, offered: Sequence[Candidate], rules: Rules
) -> tuple[list[_Sized], list[tuple[Candidate, Obstacle]]]:
    sized: list[_Sized] = []
    rejected: list[tuple[Candidate, Obstacle]] = []
    for candidate in offered:
        obstacle = unusable(work, candidate)
        found = _size_or_obstacle(work, candidate, rules) if obstacle is None else obstacle
        if isinstance(found, Obstacle):
            rejected.append((candidate, found))
        else:
            sized.append(found)
    return sized, rejected


def _size_or_obstacle(work: Work, candidate: Candidate, rules: Rules) -> _Sized | Obstacle:
    fields = fields_of(work, candidate)
    decision = rules.decide(fields)
    wanted = wanted_bytes(candidate, decision, fields)
    obstacle = too_little_memory(wanted, work.indicators.peak_host_bytes, candidate)
    if obstacle is not None:
        return obstacle
    sizing = size(work, candidate, decision, fields)
    return _Sized(candidate=candidate, decision=decision, sizing=sizing, prediction=predict(work, candidate, sizing))


# -- the rules' choice ----------------------------------------------------------------------------------------------------


def _by_rules(work: Work, sized: Sequence[_Sized]) -> tuple[_Sized, dict[str, str]]:
    """Preferences narrow the candidates down as long as some are left; the order decides among these."""
    reasons: dict[str, str] = {}
    left = list(sized)
    for about, suits in (("communication", _communicates_as_asked), ("pcie_lanes", _has_lanes)):
        kept = [one for one in left if suits(one)]
        if kept:
            reasons |= {one.candidate.name: one.decision.reason(about) for one in left if one not in kept}
            left = kept
    ranked = sorted(left, key=lambda one: _rank(work, one), reverse=True)
    first = ranked[0]
    for one in ranked[1:]:
        reasons[one.candidate.name] = f"{one.decision.reason('order')}: that is {first.candidate.name}"
    return first, reasons


def _communicates_as_asked(one: _Sized) -> bool:
    asked = one.decision.then.communication
    return asked is None or one.candidate.communication == asked


def _has_lanes(one: _Sized) -> bool:
    asked, link = one.decision.then.pcie_lanes, one.candidate.pcie
    return asked is None or link is None or link[1] >= asked


def _rank(work: Work, one: _Sized) -> tuple[float, ...]:
    return tuple(_QUALITIES[name](work, one) for name in one.decision.then.order or ("speed",))


def _speed(work: Work, one: _Sized) -> float:
    """Steps of all GPUs in a second of computing: nothing else that a step waits for is looked at."""
    if one.candidate.gpu is None:
        return float(one.sizing.cpu_cores)
    phases = phases_on(work, one.candidate.gpu)
    return one.candidate.gpu_count / phases.seconds if phases and phases.seconds else 0.0


def _loading_speed(work: Work, one: _Sized) -> float:
    """Steps of all GPUs that are loaded in a second, up to what computing takes."""
    loading = host_side.loading_seconds(work.indicators)
    cores = one.sizing.loader_workers * max(one.candidate.gpu_count, 1)
    return min(cores / loading, _speed(work, one)) if loading else _speed(work, one)


_QUALITIES: Mapping[str, Callable[[Work, _Sized], float]] = {
    "speed": _speed,
    "loading_speed": _loading_speed,
    "host_bytes_second": lambda work, one: one.candidate.host_bytes_second * max(one.candidate.gpu_count, 1),
    "gpu_count": lambda work, one: float(one.candidate.gpu_count),
    "cpu_cores": lambda work, one: float(one.candidate.node.cpu_cores),
}


# -- the analytic minimum -------------------------------------------------------------------------------------------------


def _minimum(work: Work, sized: Sequence[_Sized]) -> _Sized:
    """Over all candidates and all that each could be given; among equals the one with the fewest cores."""
    tried = [
        _with(work, one, sizing) for one in sized for sizing in (one.sizing, *all_sizes(one.candidate, one.sizing))
    ]
    return min(tried, key=lambda one: (one.prediction.run_seconds.value, one.candidate.gpu_count, one.sizing.cpu_cores))


def _with(work: Work, one: _Sized, sizing: Sizing) -> _Sized:
    return replace(one, sizing=sizing, prediction=predict(work, one.candidate, sizing))


# -- reasons --------------------------------------------------------------------------------------------------------------


def _overruled(reasons: Mapping[str, str], chosen: _Sized, taken: _Sized, slower: float) -> dict[str, str]:
    """The minimum takes the place of the rules' choice; everything else is slower than it."""
    said = {name: reason for name, reason in reasons.items() if name != taken.candidate.name}
    if chosen.candidate.name != taken.candidate.name:
        said[chosen.candidate.name] = f"the rules' choice, which is {slower * 100:.0f} % slower than the minimum"
    return said


def _reasons(decision: Decision) -> tuple[str, ...]:
    return tuple(f"{about.replace('_', ' ')}: {decision.reason(about)}" for about in decision.by)


def _considered(sized: Sequence[_Sized], taken: _Sized, reasons: Mapping[str, str]) -> list[Considered]:
    shown = [taken if one.candidate is taken.candidate else one for one in sized]
    shown.sort(key=lambda one: one.prediction.run_seconds.value)
    return [
        Considered(
            name=one.candidate.name,
            configuration=configuration(one.candidate, one.sizing),
            prediction=one.prediction,
            reason="" if one is taken else reasons.get(one.candidate.name, "slower"),
        )
        for one in shown
    ]
