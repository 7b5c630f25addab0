"""The engine `slurm`: a batch script for each job, submitted once, and found again by its name."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tonnage.engines.base import (
    EngineOptions,
    Job,
    JobId,
    JobState,
    JobStatus,
    Manifest,
    NodeInventory,
    own_options,
)
from tonnage.engines.folders import state_folder
from tonnage.engines.gpu_names import models_called, parse_types
from tonnage.engines.log_parts import read_log
from tonnage.engines.slurm_checks import check_job
from tonnage.engines.slurm_client import Silent, UnknownJob, run
from tonnage.engines.slurm_folder import JobFolder
from tonnage.engines.slurm_inventory import check_feature, default_type, offered_type, parse_nodes, shards_per_gpu
from tonnage.engines.slurm_script import OWNER, SlurmOptions, Terms, parts_of, render
from tonnage.engines.slurm_states import (
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    Record,
    parse_sacct,
    parse_squeue,
    starts_again,
    status_of,
)
from tonnage.errors import DoesNotFit, NotFound, TonnageError, Unreachable, UsageError
from tonnage.units import format_bytes

_CANCEL_SECONDS = 90.0  # Slurm's KillWait, 30 s by default, and then some
_LOCK = ".lock"
# Defaults that users keep in their environment. All other variables of this kind would overrule the script.
_USERS_DEFAULTS = {"SBATCH_PARTITION": "partition", "SBATCH_ACCOUNT": "account", "SBATCH_QOS": "qos",
                   "SBATCH_RESERVATION": "reservation", "SBATCH_TIMELIMIT": "time"}  # fmt: skip


class SlurmEngine:
    """The cluster that sbatch submits to from this machine."""

    name: ClassVar[str] = "slurm"
    Options: ClassVar[type[EngineOptions]] = SlurmOptions
    queues_jobs: ClassVar[bool] = True
    restarts_jobs: ClassVar[bool] = True

    def __init__(self, folder: Path | None = None) -> None:
        self._asked_folder = folder

    @cached_property
    def folder(self) -> Path:
        folder = self._asked_folder or state_folder() / "slurm"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def plan(self, job: Job, options: EngineOptions) -> Manifest:
        own = own_options(options, SlurmOptions)
        check_job(job, own)
        terms = Terms(folder=own.folder) if own.folder else Terms()
        return Manifest(engine=self.name, name=job.name, text=render(job, own, terms), job=job, options=own)

    def submit(self, manifest: Manifest) -> JobId:
        job, options = manifest.job, own_options(manifest.options, SlurmOptions)
        folder = JobFolder(self.folder / job.name)
        with self._alone():
            self._refuse_second(folder)
            terms = self._terms(job, options)
            try:
                folder.create(job, terms.token, Path(options.folder).absolute() if options.folder else None)
                folder.write_id(self._sbatch(folder, job, options, render(job, options, terms)))
            except FileExistsError as error:
                raise UsageError(f"there is a folder {error.filename} already", "choose another --name") from None
            except Silent:
                raise  # the folder stays: by its token the job will be found, should Slurm have taken it
            except BaseException as error:
                if not isinstance(error, TonnageError):  # cut off at any point, such as by Ctrl-C
                    self._withdraw(folder)
                folder.remove()
                raise
        return JobId(job.name)

    def state(self, job_id: JobId) -> JobStatus:
        folder = self._find(job_id)
        return self._status(folder, self._record(folder))

    def cancel(self, job_id: JobId) -> None:
        folder = self._find(job_id)
        if self.state(job_id).state.is_over or not folder.slurm_id:
            return
        folder.mark_cancelled()
        run("scancel", folder.slurm_id)
        self._wait_for_end(job_id)

    def logs(self, job_id: JobId, *, follow: bool = False) -> Iterator[str]:
        folder = self._find(job_id)
        return read_log(folder.path, lambda: follow and not self.state(job_id).state.is_over)

    def jobs(self) -> Iterator[tuple[JobId, JobStatus, Mapping[str, str]]]:
        known = {record.slurm_id: record for record in self._squeue("--me")}
        for path in sorted(self.folder.iterdir()):
            folder = JobFolder(path)
            if folder.token:
                record = known.get(folder.slurm_id)
                if record is None or folder.requeues:
                    record = self._record(folder)
                yield JobId(folder.name), self._status(folder, record), folder.labels

    def remove(self, job_id: JobId) -> None:
        folder = self._find(job_id)
        if self.state(job_id).state in (JobState.PENDING, JobState.RUNNING):
            raise UsageError(f"{job_id} is still running", f"tonnage stop {job_id}")
        folder.remove()

    def inventory(self, options: EngineOptions | None = None) -> tuple[NodeInventory, ...]:  # noqa: ARG002 - as all
        return parse_nodes(run("scontrol", "show", "node", "--oneliner"))

    def models_called(self, name: str, options: EngineOptions) -> tuple[str, ...]:
        return models_called(name, parse_types(own_options(options, SlurmOptions).gpu_types), default_type)

    def can_share(self, gpus: Collection[str], options: EngineOptions) -> bool:
        """Where every model that is there is divided into shards."""
        own = own_options(options, SlurmOptions)
        given, kinds = parse_types(own.gpu_types), set()
        for gpu in gpus:
            with suppress(DoesNotFit):  # one that this cluster does not have is told of when it is asked for
                kinds.add(given[gpu] if gpu in given else offered_type(gpu, self._nodes))
        return own.shards > 0 or all(shards_per_gpu(kind, self._nodes) for kind in kinds)

    # -- submitting -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One submission at a time, so that a folder without a number is one whose submission was cut off."""
        with open(self.folder / _LOCK, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _refuse_second(self, folder: JobFolder) -> None:
        """By the folder and by what Slurm has: a command may have died after sbatch had answered, or on another machine."""
        taken = UsageError(f"there is a Slurm job {folder.name} already", "choose another --name")
        queued = self._squeue("--me", f"--name={folder.name}")
        mine = [record for record in queued if record.comment.startswith(f"{OWNER}:{folder.name}:")]
        if not folder.exists:
            if any(not record.kind.is_over for record in mine):
                raise taken
            return
        found = folder.slurm_id or _with_token(mine, folder)
        if found:
            folder.write_id(found)
            raise taken
        folder.remove()  # nothing of it ever came to Slurm

    def _terms(self, job: Job, options: SlurmOptions) -> Terms:
        """What this cluster calls things."""
        parts = parts_of(job)
        asks = job.node_type or any(part.gpu or part.share < 1 for part in parts)
        nodes = self._nodes if asks else ()
        if job.node_type and options.node_types:
            check_feature(job.node_type, nodes)
        given = parse_types(options.gpu_types)
        types = {part.gpu: offered_type(part.gpu, nodes) for part in parts if part.gpu and part.gpu not in given}
        kinds = {"", *types.values(), *given.values()}
        return Terms(
            folder=str(Path(options.folder).absolute() if options.folder else self.folder),
            token=secrets.token_hex(8),
            gpu_types=types,
            shards={kind: shards_per_gpu(kind, nodes) for kind in kinds},
            after=tuple(self._numbers(job)),
        )

    @cached_property
    def _nodes(self) -> tuple[NodeInventory, ...]:
        return self.inventory()

    def _numbers(self, job: Job) -> Iterator[str]:
        """Of the jobs that it waits for and that are not over: of others Slurm may know nothing any more."""
        for job_id in job.after:
            if not self.state(job_id).state.is_over:
                yield self._find(job_id).slurm_id

    def _sbatch(self, folder: JobFolder, job: Job, options: SlurmOptions, text: str) -> str:
        script = folder.write_script(text)
        try:
            said = run("sbatch", "--parsable", str(script), environment=_environment(job, options))
            return said.strip().partition(";")[0]
        except Silent:
            with suppress(Unreachable):
                if found := _with_token(self._squeue("--me", f"--name={job.name}"), folder):
                    return found
            raise

    def _withdraw(self, folder: JobFolder) -> None:
        with suppress(TonnageError):  # what went wrong first is what the user must know
            if found := _with_token(self._squeue("--me", f"--name={folder.name}"), folder):
                run("scancel", found)

    # -- looking ----------------------------------------------------------------------------------------------------------

    def _find(self, job_id: JobId) -> JobFolder:
        folder = JobFolder(self.folder / job_id)
        if job_id in ("", ".", "..") or Path(job_id).name != job_id or not folder.token:
            raise NotFound(f"there is no Slurm job {job_id!r}", "`tonnage status` lists all")
        return folder

    def _record(self, folder: JobFolder) -> Record | None:
        """From the controller, which forgets a job some minutes after its end; from the accounts; from the job itself."""
        if not folder.slurm_id:
            mine = self._squeue("--me", f"--name={folder.name}")
            return next((record for record in mine if record.comment == _comment(folder)), None)
        queued = [record for record in self._squeue(f"--jobs={folder.slurm_id}") if record.slurm_id == folder.slurm_id]
        mine = [record for record in queued if record.comment == _comment(folder)]
        if mine and folder.requeues:
            return starts_again(mine[0])
        return next(iter(mine), None) or _from_accounts(folder) or folder.own_record()

    def _status(self, folder: JobFolder, record: Record | None) -> JobStatus:
        if record is None:
            forgotten = "Slurm does not know it any more, and it did not write down how it ended"
            reason = forgotten if folder.slurm_id else "its submission was cut off, and Slurm does not have it"
            return JobStatus(state=JobState.UNKNOWN, reason=reason)
        memory = format_bytes(folder.memory_bytes)
        return status_of(record, devices=folder.devices(), output=folder.output_end(), memory=memory)

    def _squeue(self, *which: str) -> list[Record]:
        fields = ",".join(f"{name}:|" for name in SQUEUE_FIELDS)
        try:
            return parse_squeue(run("squeue", "--noheader", "--states=all", f"--Format={fields}", *which))
        except UnknownJob:
            return []

    def _wait_for_end(self, job_id: JobId) -> None:
        deadline, pause = time.monotonic() + _CANCEL_SECONDS, 0.05
        while not self.state(job_id).state.is_over:
            if time.monotonic() > deadline:
                raise Unreachable(f"{job_id} did not end in {_CANCEL_SECONDS:.0f} s", "try again")
            time.sleep(pause)
            pause = min(2 * pause, 1.0)


def _comment(folder: JobFolder) -> str:
    return f"{OWNER}:{folder.name}:{folder.token}"


def _with_token(records: list[Record], folder: JobFolder) -> str:
    """The number of the job that the folder was made for; of a heterogeneous one that of its first part."""
    found = [record.slurm_id for record in records if record.comment == _comment(folder)]
    return min(found, key=int, default="")


def _from_accounts(folder: JobFolder) -> Record | None:
    """None where the cluster keeps no accounts, or none of this job."""
    fields = ",".join(SACCT_FIELDS)
    try:
        said = run(
            "sacct", "--noheader", "--parsable2", "--allocations", f"--format={fields}", f"--jobs={folder.slurm_id}"
        )
    except TonnageError:
        return None
    return next((record for record in parse_sacct(said) if record.slurm_id == folder.slurm_id), None)


def _environment(job: Job, options: SlurmOptions) -> dict[str, str]:
    """The user's own, as always with Slurm, and the job's. The script keeps no values: there may be secrets among them."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SBATCH_") or (name in _USERS_DEFAULTS and not getattr(options, _USERS_DEFAULTS[name]))
    }
    return {**own, **job.environment}
