"""The rules' choice among all candidates of an inventory, checked against the least predicted time of any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tonnage.configure.answer import Choice, Considered
from tonnage.configure.inventory import Candidate, candidates
from tonnage.configure.limits import Obstacle, nothing_fits, too_little_memory, unusable
from tonnage.configure.predict import Prediction, Predictor, Sizing, configuration
from tonnage.configure.rule_fields import fields_of
from tonnage.configure.rules import Decision, Rules
from tonnage.configure.sizing import all_sizes, size, wanted_bytes
from tonnage.configure.work import Work
from tonnage.errors import UsageError
from tonnage.hardware import Cluster

MOST_SECONDS = 3e13
TOLERANCE = 0.05  # by which the rules' choice may be slower than the minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """A candidate that can run the program, with what the rules give it."""

    predictor: Predictor
    decision: Decision
    sizing: Sizing
    prediction: Prediction

    @property
    def candidate(self) -> Candidate:
        return self.predictor.candidate


def choose(work: Work, cluster: Cluster, rules: Rules) -> Choice:
    """Raises `DoesNotFit` where nothing in the inventory can run the program."""
    sized, rejected = _sort_out(work, candidates(cluster, work.most_gpus), rules)
    if not sized:
        raise nothing_fits(rejected)
    chosen, reasons = _by_rules(sized)
    best = _minimum(sized)
    slower = chosen.prediction.run_seconds.value / best.prediction.run_seconds.value - 1
    if best.prediction.run_seconds.high > MOST_SECONDS:
        raise UsageError(f"a run of {work.run_steps:,} such steps would not end within a million years")
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
    predictor = Predictor(work, candidate)
    fields = fields_of(predictor)
    decision = rules.decide(fields)
    wanted = wanted_bytes(candidate, decision, fields)
    obstacle = too_little_memory(wanted, work.indicators.peak_host_bytes, candidate)
    if obstacle is not None:
        return obstacle
    sizing = size(work, candidate, decision, fields)
    return _Sized(predictor=predictor, decision=decision, sizing=sizing, prediction=predictor.predict(sizing))


# -- the rules' choice ----------------------------------------------------------------------------------------------------


def _by_rules(sized: Sequence[_Sized]) -> tuple[_Sized, dict[str, str]]:
    """Preferences decide among candidates with as many GPUs of one kind; the order decides among what they leave."""
    reasons: dict[str, str] = {}
    left = list(sized)
    for about, suits in (("communication", _communicates_as_asked), ("pcie_lanes", _has_lanes)):
        suited = {_gpus(one) for one in left if suits(one)}
        for one in [one for one in left if _gpus(one) in suited and not suits(one)]:
            reasons[one.candidate.name] = one.decision.reason(about)
            left.remove(one)
    ranked = sorted(left, key=_rank, reverse=True)
    first = ranked[0]
    for one in ranked[1:]:
        reasons[one.candidate.name] = f"rule {one.decision.by['order'].name} puts {first.candidate.name} first"
    return first, reasons


def _gpus(one: _Sized) -> tuple[str, int]:
    return one.candidate.gpu.name if one.candidate.gpu else "", one.candidate.gpu_count


def _communicates_as_asked(one: _Sized) -> bool:
    asked = one.decision.then.communication
    return asked is None or one.candidate.communication == asked


def _has_lanes(one: _Sized) -> bool:
    asked, link = one.decision.then.pcie_lanes, one.candidate.pcie
    return asked is None or link is None or link[1] >= asked


def _rank(one: _Sized) -> tuple[float, ...]:
    return tuple(_QUALITIES[name](one) for name in one.decision.then.order or ("speed",))


def _speed(one: _Sized) -> float:
    """Steps of all GPUs in a second of computing: nothing else that a step waits for is looked at."""
    if one.candidate.gpu is None:
        return float(one.sizing.cpu_cores)
    seconds = one.predictor.phases.seconds + one.predictor.idle_seconds
    return one.candidate.gpu_count / seconds if seconds else 0.0


def _loading_speed(one: _Sized) -> float:
    """Steps of all GPUs that are loaded in a second, up to what computing takes."""
    loading, count = one.predictor.loading_seconds, max(one.candidate.gpu_count, 1)
    return min(one.sizing.loader_workers * count / loading, _speed(one)) if loading else _speed(one)


_QUALITIES: Mapping[str, Callable[[_Sized], float]] = {
    "speed": _speed,
    "loading_speed": _loading_speed,
    "host_bytes_second": lambda one: one.candidate.host_bytes_second * max(one.candidate.gpu_count, 1),
    "gpu_count": lambda one: float(one.candidate.gpu_count),
    "cpu_cores": lambda one: float(one.candidate.node.cpu_cores),
}


# -- the analytic minimum -------------------------------------------------------------------------------------------------


def _minimum(sized: Sequence[_Sized]) -> _Sized:
    """Over all candidates and all that each could be given; among equals the one with the fewest GPUs and cores."""
    tried = [_with(one, sizing) for one in sized for sizing in (one.sizing, *all_sizes(one.candidate, one.sizing))]
    return min(tried, key=lambda one: (one.prediction.run_seconds.value, one.candidate.gpu_count, one.sizing.cpu_cores))


def _with(one: _Sized, sizing: Sizing) -> _Sized:
    return replace(one, sizing=sizing, prediction=one.predictor.predict(sizing))


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
