"""Carries out a job on a Ray cluster, as the entrypoint of a Ray job: `python ray_driver.py START`.

Waits for other jobs, asks for all places of the job together, runs one process on each, and starts them again where that
was allowed. Travels with the job: only the standard library and Ray, and any Python that Ray runs with.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEGIN, END = (
    "tonnage-output ",
    "tonnage-end ",
)  # lines of the log around what the program prints, with the mark of the start
RECORD = "tonnage-record "  # what a recorded program says of itself: see profile/recorder.py
NODE_ID_LABEL = "ray.io/node-id"
_LOST = 1  # exit code of a driver whose job has none
_KILLED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)}
_CHUNK_BYTES = 1 << 16
_SHORT_SECONDS, _LONG_SECONDS = 0.5, 2.0  # between two looks at jobs that are waited for
_NOTICE_LOOKS = 10


@dataclass(frozen=True)
class Ending:
    """How an attempt ended; without an exit code, the processes could not be run to their end."""

    exit_code: int | None
    reason: str = ""
    was_killed: bool = False


class NodeGone(Exception):
    """A place names a node that the cluster does not have, or has no longer."""


def report_name(job: str, start: str) -> str:
    return f"tonnage-{job}-{start}.json"


def main(start: str) -> int:
    """The exit code of the job."""
    order = json.loads((Path(__file__).parent / "order.json").read_text())
    folder = Path(os.readlink("/proc/self/fd/1")).parent  # where the Ray job's own log is, and what Ray lets be read
    report = Report(folder / report_name(order["name"], start))
    output = Output(folder / f"tonnage-{order['name']}-{start}.err", start, len(order["places"]) > 1)
    signal.signal(signal.SIGTERM, _stop)
    try:
        ending = _carry_out(order, report, output)
    except BaseException as error:
        reason = f"its driver failed: {type(error).__name__}: {error}"
        report.tell(phase="over", reason="" if isinstance(error, SystemExit) else reason, ended_at=time.time())
        raise
    finally:
        output.close()
    report.tell(phase="over", reason=ending.reason, exit_code=ending.exit_code, ended_at=time.time())
    return _LOST if ending.exit_code is None else ending.exit_code


class Report:
    """What the engine reads back: a line of JSON in Ray's folder of logs, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._facts: dict[str, Any] = {"restarts": 0, "devices": []}
        self.tell(phase="waiting", reason="its driver starts")

    def tell(self, **facts: object) -> None:
        self._facts.update(facts)
        fresh = self._path.with_name(f".{self._path.name}")
        fresh.write_text(json.dumps(self._facts) + "\n")
        fresh.replace(self._path)


class Output:
    """The log of the Ray job, for what the program prints. What Ray itself says here goes to a file beside it."""

    def __init__(self, aside: Path, start: str, is_gang: bool) -> None:
        self._file = os.fdopen(os.dup(1), "wb", buffering=0)
        self._start, self._is_gang = start, is_gang
        self._unfinished: dict[int, bytes] = {}
        noise = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in (1, 2):
            os.dup2(noise, descriptor)
        self._file.write(f"{BEGIN}{start}\n".encode())

    def write(self, rank: int, chunk: bytes) -> None:
        """Of several processes whole lines only, each with its rank."""
        *lines, rest = (self._unfinished.get(rank, b"") + chunk).split(b"\n")
        self._unfinished[rank] = rest
        if lines:
            self._file.write(b"".join(self._named(rank, line) + b"\n" for line in lines))

    def close(self) -> None:
        for rank, rest in self._unfinished.items():
            if rest:
                self._file.write(self._named(rank, rest) + b"\n")
        self._file.write(f"{END}{self._start}\n".encode())
        self._file.close()

    def _named(self, rank: int, line: bytes) -> bytes:
        if not self._is_gang or not line or line.startswith(RECORD.encode()):
            return line
        return f"{rank}: ".encode() + line


# -- on the head node -----------------------------------------------------------------------------------------------------


def _carry_out(order: dict[str, Any], report: Report, output: Output) -> Ending:
    _wait_for_jobs(order["after"], report)
    import ray

    ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        return _try_again(order, report, output)
    finally:
        ray.shutdown()  # at the end of the interpreter Ray would wait half a second for logs


def _try_again(order: dict[str, Any], report: Report, output: Output) -> Ending:
    """As often as is allowed, if it was killed and did not end by itself."""
    restarts, note = 0, ""
    while True:
        ending = _attempt(order, report, output, note)
        if not ending.was_killed or restarts == order["restarts"]:
            return ending
        restarts, note = restarts + 1, f"started again: {ending.reason}"
        report.tell(restarts=restarts)


def _wait_for_jobs(jobs: list[str], report: Report) -> None:
    """One question at a time: many jobs may wait. Those that Ray does not know are over."""
    if not jobs:
        return
    from ray.job_submission import JobSubmissionClient

    client, seconds = JobSubmissionClient(), _SHORT_SECONDS
    for job in jobs:
        report.tell(phase="waiting", reason=f"waits for the end of {job}")
        while _goes_on(client, job):
            time.sleep(seconds)
            seconds = min(_LONG_SECONDS, seconds * 1.2)


def _goes_on(client: Any, job: str) -> bool:
    try:
        return not client.get_job_status(job).is_terminal()
    except RuntimeError as error:
        if "404" in str(error):
            return False
        raise


def _attempt(order: dict[str, Any], report: Report, output: Output, note: str) -> Ending:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    places = order["places"]
    report.tell(phase="waiting", reason="; ".join(filter(None, [note, f"waits for {_demand(places)}"])), devices=[])
    group, seats = None, []
    try:
        labels = _selectors(order)
        bundles = [place["bundle"] for place in places]
        group = placement_group(bundles, strategy=order["strategy"], bundle_label_selector=labels)
        while not group.wait(1):
            if _selectors(order) != labels:  # a node went, or came back as another
                return Ending(None, "its node changed while it waited for it", was_killed=True)
        seats = [_seat(group, index, bundle) for index, bundle in enumerate(bundles)]
        return _run(order, seats, report, output, note)
    except NodeGone as error:
        return Ending(None, str(error))
    except ray.exceptions.RayActorError as error:
        return Ending(None, f"Ray could not start it: {_cause(error)}", was_killed=True)
    finally:
        _end(seats, order["grace_seconds"])
        if group is not None:
            remove_placement_group(group)


def _run(order: dict[str, Any], seats: list[Any], report: Report, output: Output, note: str) -> Ending:
    import ray

    facts = ray.get([seat.look.remote(order["node_label"]) for seat in seats])
    named = [fact | {"node": place["node"] or fact["node"]} for fact, place in zip(facts, order["places"], strict=True)]
    environments = [order["environment"] | _rank(rank, named) for rank in range(len(seats))]
    starts = [seat.start.remote(order, environment) for seat, environment in zip(seats, environments, strict=True)]
    refusals = [refusal for refusal in ray.get(starts) if refusal]
    if refusals:
        return Ending(None, refusals[0])
    devices = [f"{fact['node']}/gpu{gpu}" for fact in named for gpu in fact["gpus"]]
    report.tell(phase="running", reason=note, devices=devices, started_at=time.time())
    try:
        return _follow(seats, output)
    except ray.exceptions.RayActorError:
        return Ending(None, _why_lost(named), was_killed=True)


def _follow(seats: list[Any], output: Output) -> Ending:
    """Until all processes have ended, or one has failed."""
    import ray

    reads = {seat.read.remote(): rank for rank, seat in enumerate(seats)}
    while reads:
        for ready in ray.wait(list(reads), num_returns=1, timeout=1.0)[0]:
            rank = reads.pop(ready)
            chunk, exit_code = ray.get(ready)
            output.write(rank, chunk)
            if exit_code is None:
                reads[seats[rank].read.remote()] = rank
            elif exit_code:
                return _ending(exit_code)
    return Ending(0)


def _ending(exit_code: int) -> Ending:
    if 128 < exit_code <= 128 + signal.NSIG:
        name = signal.Signals(exit_code - 128).name if exit_code - 128 in set(signal.Signals) else exit_code - 128
        return Ending(exit_code, f"ended by signal {name} (exit {exit_code})", was_killed=exit_code in _KILLED)
    return Ending(exit_code)


def _selectors(order: dict[str, Any]) -> list[dict[str, str]]:
    """Nodes by their identity of today: names are ours, and a node that comes back has another identity."""
    alive = [node for node in _nodes() if node["Alive"]]
    selectors = []
    for place in order["places"]:
        selector = dict(place["labels"])
        if place["node"]:
            found = [node["NodeID"] for node in alive if place["node"] in _names(node, order["node_label"])]
            if not found:
                raise NodeGone(f"the node {place['node']} is lost")
            selector[NODE_ID_LABEL] = found[0] if len(found) == 1 else f"in({','.join(sorted(found))})"
        selectors.append(selector)
    return selectors


def _nodes() -> list[dict[str, Any]]:
    import ray

    return ray.nodes()  # type: ignore[no-untyped-call,no-any-return]  # as Ray has it


def _names(node: dict[str, Any], node_label: str) -> list[str]:
    """By which a node may be called, the best first."""
    given = (node["Labels"] or {}).get(node_label)
    return [name for name in (given, node["NodeName"], node["NodeManagerAddress"], node["NodeID"]) if name]


def _demand(places: list[dict[str, Any]]) -> str:
    return " and ".join(f"{_bundle_words(place['bundle'])} on {place['node'] or 'any node'}" for place in places)


def _bundle_words(bundle: dict[str, float]) -> str:
    model = next((key.partition(":")[2] for key in bundle if key.startswith("accelerator_type:")), "")
    gpus = f"{bundle['GPU']:g} GPU {model}".strip() + ", " if "GPU" in bundle else ""
    return f"{gpus}{bundle['CPU']:g} CPU, {bundle['memory'] / (1 << 30):.3g} GiB"


def _rank(rank: int, facts: list[dict[str, Any]]) -> dict[str, str]:
    """One process a place, each of which sees its own GPUs only: so the first is always its own."""
    return {
        "RANK": str(rank), "WORLD_SIZE": str(len(facts)), "LOCAL_RANK": "0",
        "MASTER_ADDR": facts[0]["address"], "MASTER_PORT": str(facts[0]["port"]),
    }  # fmt: skip


def _seat(group: Any, index: int, bundle: dict[str, float]) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    where = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
    wanted = {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0), "memory": bundle["memory"]}
    # Two at once: it can be stopped while it is read.
    return ray.remote(Seat).options(scheduling_strategy=where, max_concurrency=2, **wanted).remote()


def _end(seats: list[Any], grace_seconds: float) -> None:
    """A place is given back when its processes are gone, so that the next one there finds its GPU empty."""
    import ray

    if not seats:
        return
    ray.wait([seat.stop.remote() for seat in seats], num_returns=len(seats), timeout=grace_seconds + 5)
    for seat in seats:
        ray.kill(seat)


def _why_lost(facts: list[dict[str, Any]]) -> str:
    """Ray notices that a node is gone a little later than that a process on it is."""
    for _ in range(_NOTICE_LOOKS):
        alive = {node["NodeID"] for node in _nodes() if node["Alive"]}
        lost = [fact["node"] for fact in facts if fact["id"] not in alive]
        if lost:
            return f"the node {lost[0]} was lost"
        time.sleep(_SHORT_SECONDS)
    return "its worker was killed, by Ray or by the kernel, most likely for memory"


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _stop(*_: object) -> None:
    """As `ray job stop` asks. Ray kills the driver after 3 s; keepers then end their processes by themselves."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)


# -- on the nodes of the job ----------------------------------------------------------------------------------------------


class Seat:
    """An actor that holds one place of the job, with the process that runs there."""

    def __init__(self) -> None:
        self._folder = Path.cwd()  # the working folder, as Ray unpacked it on this node
        self._process: subprocess.Popen[bytes] | None = None

    def look(self, node_label: str) -> dict[str, Any]:
        """Where this is, a free port here, and the GPUs that Ray gave."""
        import ray

        context = ray.get_runtime_context()
        node = next(node for node in _nodes() if node["NodeID"] == context.get_node_id())
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        gpus = context.get_accelerator_ids().get("GPU", [])
        address = node["NodeManagerAddress"]
        named = {"node": _names(node, node_label)[0], "id": node["NodeID"]}
        return named | {"address": address, "port": port, "gpus": gpus}

    def start(self, order: dict[str, Any], environment: dict[str, str]) -> str:
        """Nothing, or why it cannot be started here."""
        import ray

        workdir = Path(order["workdir"] or self._folder)
        if not workdir.is_dir():
            if not order["has_files"]:
                return f"there is no folder {workdir} on the node"
            workdir = self._folder  # a folder of the user's own machine; the program's files are here
        if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # none was asked for: none is seen
        here = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        copied = set(order["copied_words"])
        words = [str(self._folder / word) if at in copied else word for at, word in enumerate(order["command"])]
        keeper = self._folder / ".tonnage" / "ray_keeper.py"
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(keeper), str(order["grace_seconds"]), *words],
            cwd=workdir,
            env={**os.environ, "PATH": here, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return ""

    def read(self) -> tuple[bytes, int | None]:
        """The next that was printed; or nothing, and the exit code. Who left the group may hold the pipe longer."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        while True:
            if select.select([process.stdout], [], [], 0.1)[0]:
                chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
                return (chunk, None) if chunk else (b"", process.wait())
            if process.poll() is not None:
                return b"", process.returncode

    def stop(self) -> None:
        """The keeper ends the process at the end of its input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
