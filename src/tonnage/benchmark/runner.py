"""Measures a campaign into the database, whatever happens to single points: each ends in a row, and the run goes on.

This process never loads torch. A measuring process does the work; when it dies, the job that killed it is recorded as
failed and a new process takes over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tonnage.benchmark.campaign import Campaign
from tonnage.benchmark.messages import Order
from tonnage.benchmark.plan import REPLACEABLE, Plan, make_plan
from tonnage.benchmark.progress import Ending, Progress, Report, Silence, Tally, Watcher
from tonnage.benchmark.results import Job, Measured, unsuccessful
from tonnage.benchmark.work import Batch, all_jobs, in_words
from tonnage.benchmark.worker_process import WORKER, Died, Stopped, WorkerProcess
from tonnage.errors import InvalidFile, TonnageError
from tonnage.store.database import Database
from tonnage.store.rows import Environment, Status

START_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a campaign is run here and now."""

    device: str = "auto"  # or cuda, cpu
    gpu_index: int = 0
    budget_seconds: float | None = None  # the campaign's own if there is none
    again_failed: bool = False  # run what has failed before once more
    command: Sequence[str] = WORKER  # what starts the measuring process


def run_campaign(
    campaign: Campaign,
    database: Database,
    settings: Settings | None = None,
    *,
    watcher: Watcher | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Report:
    """Measure what the database does not have yet, until all is done, time is up or somebody wants to stop.

    Raises `MissingDependency`, `Unreachable` or `NotFound` if measuring is not possible here; what was measured before
    an error stays in the database.
    """
    return _Run(campaign, database, settings or Settings(), watcher or Silence(), should_stop).run()


class _Run:
    """The state of one run."""

    def __init__(
        self,
        campaign: Campaign,
        database: Database,
        settings: Settings,
        watcher: Watcher,
        should_stop: Callable[[], bool],
    ) -> None:
        self._campaign, self._database, self._settings = campaign, database, settings
        self._watcher, self._should_stop = watcher, should_stop
        self._budget = campaign.budget_seconds if settings.budget_seconds is None else settings.budget_seconds
        self._worker: WorkerProcess | None = None
        self._environment: Environment | None = None
        self._plan = Plan(jobs={job.key: job for job in all_jobs(campaign)})
        self._queue: deque[Batch] = deque()
        self._running: Batch = ()
        self._retried: set[Batch] = set()
        self._tally = Tally()
        self._started = self._ended = time.monotonic()

    def run(self) -> Report:
        ending = Ending.INTERRUPTED
        try:
            self._environment = self._start_worker()
            if self._settings.device == "auto" and self._environment.device == "cpu":
                self._watcher.note("torch finds no GPU: this measures the CPU, for which the campaign quick is meant")
            self._plan = make_plan(self._campaign, self._database, self._environment, self._settings.again_failed)
            self._queue.extend(self._plan.batches)
            self._started = time.monotonic()  # the budget is for measuring, not for loading libraries
            ending = self._measure_all()
        except Stopped:
            pass
        finally:
            self._ended = time.monotonic()
            self._end_worker()
        return self._report(ending)

    # -- the measuring process --------------------------------------------------------------------------------------------

    def _start_worker(self) -> Environment:
        reason = ""
        for _ in range(START_TRIES):
            self._worker = WorkerProcess(
                self._settings.device,
                self._settings.gpu_index,
                should_stop=self._should_stop,
                command=self._settings.command,
            )
            try:
                return self._worker.environment()
            except Died as death:
                self._end_worker()
                reason = death.reason
        hint = "does `python -c 'import torch; torch.ones(1)'` work?"
        raise TonnageError(f"measuring could not start, {START_TRIES} times in a row: {reason}", hint)

    def _end_worker(self) -> None:
        if self._worker:
            self._worker.end()
            self._worker = None

    # -- measuring --------------------------------------------------------------------------------------------------------

    def _measure_all(self) -> Ending:
        while self._queue:
            if self._should_stop():
                return Ending.INTERRUPTED
            if time.monotonic() - self._started >= self._budget:
                return Ending.OUT_OF_TIME
            self._measure(self._queue.popleft())
        return Ending.COMPLETE

    def _measure(self, batch: Batch) -> None:
        began, self._running = time.monotonic(), batch
        if self._worker is None:
            self._start_worker()
        assert self._worker is not None
        order = Order(batch, self._campaign.name, self._campaign.method)
        try:
            results = self._worker.measure(order, self._campaign.limit_seconds, self._begun)
        except Died as death:
            self._end_worker()
            self._go_on_after(death, batch)
            return
        for measured in results:
            self._keep(measured)
        self._tally.time(batch, time.monotonic() - began)
        self._running = ()
        self._show(None)

    def _begun(self, key: str) -> None:
        self._show(self._plan.jobs[key])

    def _go_on_after(self, death: Died, batch: Batch) -> None:
        """Blame the job that had begun. If it was none, try once more, then in halves, to find it."""
        if death.key is None and batch not in self._retried:
            self._retried.add(batch)
            self._queue.appendleft(batch)
        elif death.key is None and len(batch) > 1:
            half = len(batch) // 2
            self._queue.extendleft((batch[half:], batch[:half]))
        else:
            key = death.key or batch[0].key
            self._keep(unsuccessful(self._plan.jobs[key], self._campaign.name, Status.FAILED, death.reason))
            rest = tuple(job for job in batch if job.key != key)
            self._queue.extendleft([rest] if rest else [])

    def _keep(self, measured: Measured) -> None:
        """One measurement with its rows, in a transaction of its own."""
        assert self._environment is not None
        key = measured.measurement.key
        if key in self._plan.replaced:
            for status in REPLACEABLE:
                self._database.remove(environment=self._environment, keys=[key], status=status)
        try:
            self._database.add(self._environment, *measured)
        except InvalidFile as error:  # a number that cannot be, such as an infinite time
            measured = unsuccessful(self._plan.jobs[key], self._campaign.name, Status.FAILED, error.message)
            self._database.add(self._environment, *measured)
        self._tally.count(measured)
        if measured.measurement.status is Status.FAILED:
            self._watcher.note(f"{in_words(self._plan.jobs[key])} failed: {measured.measurement.message}")

    # -- telling ----------------------------------------------------------------------------------------------------------

    def _show(self, current: Job | None) -> None:
        elapsed = time.monotonic() - self._started
        waiting = [job for batch in (self._running, *self._queue) for job in batch]
        remaining = self._tally.remaining_seconds(waiting)
        budget_left = max(self._budget - elapsed, 0.0)
        self._watcher.show(
            Progress(
                total=self._plan.count,
                done=self._tally.statuses.total(),
                current=current,
                elapsed_seconds=elapsed,
                remaining_seconds=None if remaining is None else min(remaining, budget_left),
            )
        )

    def _report(self, ending: Ending) -> Report:
        statuses = self._tally.statuses
        return Report(
            campaign=self._campaign.name,
            database=self._database.name,
            environment=self._environment,
            ending=ending,
            seconds=self._ended - self._started,
            ok=statuses[Status.OK],
            out_of_memory=statuses[Status.OUT_OF_MEMORY],
            failed=statuses[Status.FAILED],
            skipped=self._plan.skipped,
            failed_before=self._plan.failed_before,
            left=self._plan.count - statuses.total(),
            kernels=self._tally.kernels,
            hosts=self._tally.hosts,
            failures=tuple(self._tally.failures),
        )
