"""The engine `ray`: a job of Ray's Jobs API whose driver, sent along, asks for its places and runs a process on each."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import ClassVar

import yaml

from tonnage.engines.base import EngineOptions, Job, JobId, JobStatus, Manifest, NodeInventory, own_options
from tonnage.engines.gpu_names import models_called, parse_types
from tonnage.engines.ray_client import Dashboard
from tonnage.engines.ray_driver import BEGIN, END, report_name
from tonnage.engines.ray_fit import check_fits, check_version
from tonnage.engines.ray_request import (
    LABEL_PREFIX,
    OWN_LABEL,
    START,
    Document,
    RayOptions,
    check_job,
    order_of,
    package_name,
    package_of,
    ray_model,
    request_of,
)
from tonnage.engines.ray_states import job_status, node_inventory
from tonnage.engines.recording import without_recorder
from tonnage.errors import NotFound, Unreachable, UsageError

_STOP_SECONDS = 20.0  # Ray kills a driver 3 s after it was asked to end
_POLL_SECONDS = 0.2
# Ray looks after a job for two seconds more, and calls the next of its name failed if that comes before (2.60).
_SETTLED_SECONDS = 2.5
_SILENT_SECONDS = 10.0  # after which the follower of a log asks whether the job is over


class RayEngine:
    """A cluster, as RAY_API_SERVER_ADDRESS (or the address given) names its dashboard."""

    name: ClassVar[str] = "ray"
    Options: ClassVar[type[EngineOptions]] = RayOptions
    queues_jobs: ClassVar[bool] = True
    restarts_jobs: ClassVar[bool] = True

    def __init__(self, address: str | None = None) -> None:
        self.dashboard = Dashboard(address)

    def plan(self, job: Job, options: EngineOptions) -> Manifest:
        chosen = own_options(options, RayOptions)
        check_job(job, chosen)
        return Manifest(engine=self.name, name=job.name, text=_render(job, chosen), job=job, options=chosen)

    def submit(self, manifest: Manifest) -> JobId:
        """Ray takes a name once, so a request that is sent again never runs a job twice."""
        job, options = manifest.job, own_options(manifest.options, RayOptions)
        check_version(self.dashboard.version())
        if options.check_nodes:
            check_fits(order_of(job, options), self.dashboard.nodes())
        start = secrets.token_hex(8)
        # First, and of no use to anybody alone: Ray forgets a package that no job refers to.
        self.dashboard.upload(package_name(job, start), package_of(job, options))
        try:
            self.dashboard.submit(request_of(job, options, start))
        except Unreachable:
            if not self._was_taken(job.name, start):
                raise
        return JobId(job.name)

    def state(self, job_id: JobId) -> JobStatus:
        return self._status(self._find(job_id))

    def cancel(self, job_id: JobId) -> None:
        """Returns when it is over: a job that was just submitted may have to be asked twice."""
        deadline = time.monotonic() + _STOP_SECONDS
        while not self.state(job_id).state.is_over:
            if time.monotonic() > deadline:
                raise Unreachable(f"{job_id} did not end", "try again")
            self.dashboard.stop(job_id)
            time.sleep(_POLL_SECONDS)

    def logs(self, job_id: JobId, *, follow: bool = False) -> Iterator[str]:
        self._find(job_id)
        return self._lines(job_id, follow)

    def jobs(self) -> Iterator[tuple[JobId, JobStatus, Mapping[str, str]]]:
        for document in self.dashboard.jobs():
            if _is_ours(document):
                yield JobId(document["submission_id"]), self._status(document), _labels(document)

    def remove(self, job_id: JobId) -> None:
        document = self._find(job_id)
        if not self._status(document).state.is_over:
            raise UsageError(f"{job_id} is still running", f"tonnage stop {job_id}")
        age_seconds = time.time() - (document["end_time"] or 0) / 1000
        time.sleep(min(max(_SETTLED_SECONDS - age_seconds, 0.0), _SETTLED_SECONDS))
        self.dashboard.delete(job_id)

    def inventory(self, options: EngineOptions | None = None) -> tuple[NodeInventory, ...]:
        """By the names that plans use: the label of a node, else what Ray calls it."""
        label = own_options(options or EngineOptions(), RayOptions).node_label
        nodes = [node_inventory(node, label) for node in self.dashboard.nodes()]
        return tuple(sorted(nodes, key=lambda node: node.name))

    def models_called(self, name: str, options: EngineOptions) -> tuple[str, ...]:
        return models_called(name, parse_types(own_options(options, RayOptions).gpu_types), ray_model)

    def can_share(self, gpus: Collection[str], options: EngineOptions) -> bool:  # noqa: ARG002 - all of them, always
        return True

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _find(self, job_id: JobId) -> Document:
        document = self.dashboard.job(job_id)
        if not _is_ours(document):
            raise NotFound(f"Ray's job {job_id!r} is not one of Tonnage", "`ray job status` asks for it")
        return document

    def _status(self, document: Document) -> JobStatus:
        return job_status(document, self._report(document))

    def _report(self, document: Document) -> Document:
        """What the driver wrote; nothing before it has, or where its node is gone."""
        if document["driver_node_id"] is None:
            return {}
        name = report_name(document["submission_id"], _start(document))
        with suppress(Unreachable):  # Ray answers 500 for a node that is gone; that Ray itself is there is known
            written = self.dashboard.file(document["driver_node_id"], name)
            report: Document = json.loads(written) if written.endswith("}\n") else {}
            return report
        return {}

    def _was_taken(self, name: str, start: str) -> bool:
        """Whether a request whose answer was lost arrived all the same."""
        with suppress(NotFound, Unreachable):
            return _start(self.dashboard.job(name)) == start
        return False

    def _lines(self, job_id: JobId, follow: bool) -> Iterator[str]:
        """Reads on until the end is told in the log, or the job is over without: its driver was killed."""
        shown = 0
        while True:
            document = self._find(job_id)
            is_over = self._status(document).state.is_over
            reader = _Reader(document)
            for number, line in enumerate(reader.read(self._log(document, follow and not is_over))):
                if number >= shown:
                    yield line
                    shown = number + 1
            if not follow or is_over or reader.is_at_end:
                return
            if document["driver_node_id"] is None:
                time.sleep(_POLL_SECONDS)

    def _log(self, document: Document, follow: bool) -> Iterator[str]:
        node_id, name = document["driver_node_id"], f"job-driver-{document['submission_id']}.log"
        if node_id is None:
            return iter(())
        return self.dashboard.lines(node_id, name, follow=follow, silent_seconds=_SILENT_SECONDS)


class _Reader:
    """What the program of one submission printed, out of a log that Ray and earlier jobs of the name have written to."""

    def __init__(self, document: Document) -> None:
        start = _start(document)
        self._begin, self._end = BEGIN + start, END + start
        # Ray writes it before it starts the driver, and it may be seen after what the driver wrote first.
        self._header = f"Running entrypoint for job {document['submission_id']}: {document['entrypoint']}"
        self.is_at_end = False

    def read(self, lines: Iterator[str]) -> Iterator[str]:
        is_inside = False
        for line in lines:
            if line == self._end:
                self.is_at_end = True
                return
            if is_inside and line != self._header:
                yield line
            is_inside = is_inside or line == self._begin


def _render(job: Job, options: RayOptions) -> str:
    """The request, and what goes into the working folder."""
    request, order = (
        yaml.safe_dump(each, sort_keys=False, width=1000) for each in (request_of(job, options), order_of(job, options))
    )
    own = f": {', '.join(sorted(without_recorder(job.source)))}" if job.source is not None else ": none"
    return (
        f"# POST /api/jobs/ ({START}: a mark that is made when it is sent)\n{request}---\n"
        f"# the order, in the working folder beside the program's files{own}\n{order}"
    )


def _is_ours(document: Document) -> bool:
    return OWN_LABEL in (document.get("metadata") or {})


def _labels(document: Document) -> dict[str, str]:
    found = document["metadata"].items()
    return {key.removeprefix(LABEL_PREFIX): value for key, value in found if key.startswith(LABEL_PREFIX)}


def _start(document: Document) -> str:
    """The mark of this submission: a removed job's name may be used again, and its files are still there."""
    return str(document["entrypoint"]).rpartition(" ")[2]
