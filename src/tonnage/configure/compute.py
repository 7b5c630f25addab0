"""Forward, backward and optimizer of a program on a GPU: as measured there, as estimated, or in proportion to its rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tonnage.configure.work import Known, Work
from tonnage.estimate.kernels.rates import Rates
from tonnage.estimate.kernels.table import ARITHMETICS
from tonnage.hardware import Gpu, find_gpu
from tonnage.profile.indicators import Indicators

# Half of the time of a pass goes with arithmetic, half with memory bandwidth; updates go with bandwidth alone. With
# these shares, ratios of catalogue rates were within a factor of 2.21 of estimates for nine of ten pairs of GPUs, and
# within `RATIO_SPREAD` for programs and GPUs they were not chosen by: benchmarks/configure/rules.py --held-out.
_ARITHMETIC_SHARE = 0.5
RATIO_SPREAD = 2.9
# A step that was measured on this very GPU, in another node: our assumption, until such pairs were measured.
MEASURED_SPREAD = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Seconds of a step on one GPU; `low` and `high` are factors that bound it."""

    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    basis: str  # "measured", "estimate" or "ratio"
    low: float
    high: float
    holds_idle: bool = False  # what the GPU waits for the host is in the phases already
    holds_copies: bool = False

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds + self.optimizer_seconds


def phases_on(work: Work, gpu: Gpu) -> Phases | None:
    """None where nothing is known: the indicators are of a processor, and nobody has estimated the program."""
    indicators, known = work.indicators, work.known.get(gpu.name)
    has_run = indicators.device == "cuda" and indicators.basis == "measured"
    if has_run and _source(work) == gpu:
        return _scaled(indicators, 1.0, 1.0, "measured", MEASURED_SPREAD)
    if gpu.name in work.seen:
        return _of_run(work.seen[gpu.name])
    if known is not None:
        return _estimated(known, _correction(work) if has_run else 1.0)
    if indicators.device != "cuda":
        return None
    return _by_rates(work, _source(work), gpu)


def _of_run(run: Indicators) -> Phases:
    """All of a step but the wait for data: a run by the clock alone does not tell copies and idle moments apart."""
    rest = run.step_seconds - run.data_wait_seconds - run.backward_seconds - run.optimizer_seconds
    return Phases(
        forward_seconds=max(rest, 0.0),
        backward_seconds=run.backward_seconds,
        optimizer_seconds=run.optimizer_seconds,
        basis="measured",
        low=1 / MEASURED_SPREAD,
        high=MEASURED_SPREAD,
        holds_idle=True,
        holds_copies=True,
    )


def _source(work: Work) -> Gpu:
    return find_gpu(work.indicators.gpu)


def _correction(work: Work) -> float:
    """By how much the run took longer than its estimate on the GPU where it was measured."""
    there = work.known.get(_source(work).name)
    own = work.indicators
    measured = own.forward_seconds + own.backward_seconds + own.optimizer_seconds + own.idle_seconds
    return measured / there.compute_seconds if there and measured else 1.0


def _estimated(known: Known, factor: float) -> Phases:
    step = known.step_seconds
    return Phases(
        forward_seconds=known.forward_seconds * factor,
        backward_seconds=known.backward_seconds * factor,
        optimizer_seconds=known.optimizer_seconds * factor,
        basis="estimate",
        low=step.low / step.value,
        high=step.high / step.value,
        holds_idle=True,
    )


def _by_rates(work: Work, source: Gpu, target: Gpu) -> Phases:
    before, after = Rates.of(source), Rates.of(target)
    streams = before.stream / after.stream
    arithmetic = operations_second(source) / operations_second(target)
    passes = _ARITHMETIC_SHARE * arithmetic + (1 - _ARITHMETIC_SHARE) * streams
    same = source == target
    return _scaled(work.indicators, passes, streams, "ratio", MEASURED_SPREAD if same else RATIO_SPREAD)


def operations_second(gpu: Gpu) -> float:
    """Of full single precision and of what libraries do in its place alike: indicators do not say which a program uses."""
    rates = Rates.of(gpu).operations
    chosen = [float(rates[ARITHMETICS.index(name)]) for name in ("fp32", "tf32")]
    return math.prod(chosen) ** (1 / len(chosen))


def _scaled(indicators: Indicators, passes: float, updates: float, basis: str, spread: float) -> Phases:
    return Phases(
        forward_seconds=indicators.forward_seconds * passes,
        backward_seconds=indicators.backward_seconds * passes,
        optimizer_seconds=indicators.optimizer_seconds * updates,
        basis=basis,
        low=1 / spread,
        high=spread,
    )
