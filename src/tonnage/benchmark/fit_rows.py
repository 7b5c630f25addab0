"""What `tonnage fit` learns from: the user's rows, and kernels of GPUs that come with the package."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tonnage.benchmark import shipped
from tonnage.benchmark.fit_copies import Copy, read_copies
from tonnage.benchmark.fit_host import LEAST_SAMPLES
from tonnage.benchmark.fitting import OperatorCost, is_known, read_kernels, read_operator_costs, read_steps
from tonnage.benchmark.kernel_samples import Sample
from tonnage.benchmark.seen import Seen
from tonnage.benchmark.step_samples import StepSample
from tonnage.errors import TonnageError
from tonnage.store.database import Database

LEAST_MEASUREMENTS = 20
_MEASURE = "measure more: tonnage bench run"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitRows:
    """Host, copies and energy are those of the user's own machine; kernels of other GPUs are worth knowing as well."""

    kernels: list[Sample]
    shipped: list[Sample]  # of GPUs that the user has not measured
    steps: list[StepSample]
    costs: list[OperatorCost]
    copies: list[Copy]

    @property
    def all_kernels(self) -> list[Sample]:
        return [*self.kernels, *self.shipped]

    @property
    def gpus(self) -> tuple[str, ...]:
        """The user's own."""
        return tuple(sorted({sample.gpu for sample in self.kernels}))

    @property
    def shipped_gpus(self) -> tuple[str, ...]:
        return tuple(sorted({sample.gpu for sample in self.shipped}))

    @property
    def keys(self) -> list[str]:
        """Of the user's measurements that have kernels."""
        return sorted({sample.key for sample in self.kernels})

    @property
    def seen(self) -> Seen:
        """By a model that is fitted to all of them."""
        return Seen.of((sample.gpu, sample.key) for sample in self.all_kernels)


def read_rows(database: Database, progress: Progress = lambda text: None) -> FitRows:
    """Raises TonnageError with what is missing where the rows do not do."""
    progress("reading the database")
    kernels = read_kernels(database)
    _require_kernels(database, kernels)
    steps = read_steps(database)
    _require_steps(database, steps)
    costs, copies = read_operator_costs(database), read_copies(database)
    own = {sample.gpu for sample in kernels}
    if not own.issuperset(shipped.GPUS):
        progress("reading the rows that come with the package")
    return FitRows(kernels=kernels, shipped=shipped_kernels(own), steps=steps, costs=costs, copies=copies)


def shipped_kernels(without: Collection[str]) -> list[Sample]:
    """Samples that come with the package, of GPUs other than these."""
    if set(shipped.GPUS) <= set(without):
        return []
    with shipped.shipped_database() as database:
        return [sample for sample in read_kernels(database) if sample.gpu not in without]


def _require_kernels(database: Database, kernels: Collection[Sample]) -> None:
    found = len({sample.key for sample in kernels})
    if found >= LEAST_MEASUREMENTS:
        return
    needs = f"a fit needs at least {LEAST_MEASUREMENTS} measurements with kernels of a GPU"
    measured = {environment.gpu for environment, _ in database.measurements()}
    unknown = sorted(gpu for gpu in measured if gpu and not is_known(gpu))
    if not measured:
        raise TonnageError(f"{database.name} holds no measurements; {needs}", "measure some: tonnage bench run")
    if measured == {""}:
        raise TonnageError(
            f"{database.name} holds measurements of CPUs only; {needs}",
            "run tonnage bench run on a machine with an NVIDIA GPU",
        )
    if found == 0 and unknown:
        raise TonnageError(
            f"{database.name} holds measurements of {', '.join(unknown)}, which the catalogue does not know; {needs}",
            "tonnage gpus lists the GPUs that it knows",
        )
    raise TonnageError(f"{database.name} holds {found} measurements with kernels of known GPUs; {needs}", _MEASURE)


def _require_steps(database: Database, steps: Collection[StepSample]) -> None:
    if len(steps) < LEAST_SAMPLES:
        raise TonnageError(
            f"{database.name} holds {len(steps)} timed steps of sample workloads; a fit needs at least "
            f"{LEAST_SAMPLES}, since single layers say nothing about the host",
            _MEASURE,
        )
