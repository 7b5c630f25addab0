"""Processes on this machine: the contract, their limits, and that nobody else's process is ever touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from contract import PROGRAMS, EngineContract, is_over, wait_for

from tonnage.engines.base import Engine, EngineOptions, Job, JobId, JobState, Mount, Resources
from tonnage.engines.cgroups import create_group
from tonnage.engines.host import Host, HostGpu
from tonnage.engines.local import LocalEngine, LocalOptions
from tonnage.engines.log_parts import LogWriter, read_log
from tonnage.engines.ports import free_port
from tonnage.engines.processes import birth, is_same, kill_group
from tonnage.engines.supervisor import STATE
from tonnage.errors import DoesNotFit, NotFound, UsageError

MIB = 1 << 20


def python(program: str, **more: object) -> Job:
    return replace(Job(name="contract", command=(sys.executable, "-c", program)), **more)


@pytest.fixture
def local(tmp_path: Path) -> LocalEngine:
    return LocalEngine(tmp_path / "local")


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Engine:
        return LocalEngine(tmp_path / "local")

    def job(self, program: str) -> Job:
        return python(PROGRAMS[program])


def submit(engine: LocalEngine, job: Job, options: EngineOptions | None = None) -> JobId:
    return engine.submit(engine.plan(job, options or LocalOptions()))


def output(engine: LocalEngine, job: Job) -> list[str]:
    job_id = submit(engine, job)
    wait_for(engine, job_id, is_over)
    return list(engine.logs(job_id))


def can_limit(what: str) -> bool:
    group = create_group(f"probe-{os.getpid()}", memory_bytes=64 * MIB, pids=16)
    group.remove()
    return what in group.folders


def test_another_process_sees_and_stops_the_job(local: LocalEngine) -> None:
    job_id = submit(local, python(PROGRAMS["sleep"]))
    code = (
        "import sys; from pathlib import Path; from tonnage.engines.local import LocalEngine\n"
        "engine = LocalEngine(Path(sys.argv[1])); print(engine.state(sys.argv[2]).state); engine.cancel(sys.argv[2])"
    )
    seen = subprocess.run(
        [sys.executable, "-c", code, local.folder, job_id], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "running"
    assert local.state(job_id).state is JobState.CANCELLED


def test_children_end_with_the_job(local: LocalEngine) -> None:
    program = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    )
    (pid,) = output(local, python(program))
    assert birth(int(pid)) == ""


def test_a_job_that_ignores_the_signal_is_killed(local: LocalEngine) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
    )
    job_id = submit(local, python(program), LocalOptions(grace_seconds=0.2))
    assert next(local.logs(job_id, follow=True)) == "on"
    local.cancel(job_id)
    assert (local.state(job_id).state, local.state(job_id).exit_code) == (JobState.CANCELLED, 137)


def test_a_number_that_was_used_again_is_not_killed(local: LocalEngine) -> None:
    job_id = submit(local, python(PROGRAMS["hello"]))
    wait_for(local, job_id, is_over)
    bystander = subprocess.Popen(
        [sys.executable, "-c", PROGRAMS["sleep"]], stdout=subprocess.DEVNULL, start_new_session=True
    )
    with bystander:
        path = local.folder / job_id / STATE
        forged = {"pid": bystander.pid, "supervisor": bystander.pid, "state": "running"}
        path.write_text(json.dumps(json.loads(path.read_text()) | forged))
        local.cancel(job_id)
        assert bystander.poll() is None
        assert local.state(job_id).state is JobState.FAILED
        bystander.kill()


def test_a_job_without_its_supervisor_can_still_be_stopped(local: LocalEngine) -> None:
    job_id = submit(local, python(PROGRAMS["sleep"]))
    assert next(local.logs(job_id, follow=True)) == "asleep"  # later, nobody would take in what it prints
    state = json.loads((local.folder / job_id / STATE).read_text())
    assert kill_group(state["supervisor"], state["supervisor_birth"])
    wait_for(local, job_id, lambda status: "supervisor is gone" in status.reason)
    local.cancel(job_id)
    assert local.state(job_id).state is JobState.CANCELLED
    assert wait_until(lambda: not is_same(state["pid"], state["birth"]))
    assert not any(Path(folder).exists() for folder in state["groups"].values())


def wait_until(holds: object) -> bool:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.02)
    return bool(holds())  # type: ignore[operator]


def test_only_so_many_cores_can_be_used(local: LocalEngine) -> None:
    lines = output(local, python("import os; print(len(os.sched_getaffinity(0)))"))
    assert lines == ["1"]


def test_a_job_killed_for_memory_says_so(local: LocalEngine) -> None:
    if not can_limit("memory"):
        pytest.skip("no control group for memory can be made here")
    job = python("x = bytearray(400 << 20)", resources=Resources(memory_bytes=64 * MIB))
    status = wait_for(local, submit(local, job), is_over)
    assert (status.exit_code, status.reason) == (137, "killed for memory (exit 137)")


def test_too_many_processes_are_refused_to_the_job(local: LocalEngine) -> None:
    if not can_limit("pids"):
        pytest.skip("no control group for processes can be made here")
    program = (
        "import os\nfor n in range(50):\n try: pid = os.fork()\n except OSError: print('refused', n < 20); break\n"
        " if not pid: import time; time.sleep(600)"
    )
    assert output(local, python(program, resources=Resources(pids=8))) == ["refused True"]


def test_without_control_groups_the_address_space_is_limited(
    local: LocalEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shadow = tmp_path / "shadow" / "sitecustomize.py"
    shadow.parent.mkdir()
    shadow.write_text("import tonnage.engines.cgroups as c; c._mount = lambda controller: None")
    monkeypatch.setenv("PYTHONPATH", f"{shadow.parent}:{os.environ.get('PYTHONPATH', '')}")
    job = python("x = bytearray(2 << 30)", resources=Resources(memory_bytes=512 * MIB))
    status = wait_for(local, submit(local, job), is_over)
    assert status.exit_code == 1  # MemoryError
    assert "address space" in status.reason


def test_a_command_that_is_not_there_leaves_nothing(local: LocalEngine) -> None:
    with pytest.raises(NotFound, match="no-such-program"):
        submit(local, Job(name="x", command=("/no-such-program",)))
    assert list(local.folder.iterdir()) == []


PRINT = "for number in range({lines}): print(f'line {{number:05}} of a log')\n"  # 20 bytes a line


def test_of_a_long_log_the_beginning_and_the_end_are_kept(local: LocalEngine) -> None:
    job_id = submit(local, python(PRINT.format(lines=10_000)), LocalOptions(log_bytes=3000))
    wait_for(local, job_id, is_over)
    lines = list(local.logs(job_id))
    (notice,) = (number for number, line in enumerate(lines) if line.startswith("[tonnage:"))
    assert lines[:notice] == [f"line {number:05} of a log" for number in range(50)]
    assert lines[notice] == "[tonnage: 192 KiB of output were dropped here]"
    assert lines[notice + 1 :] == [f"line {number:05} of a log" for number in range(9_900, 10_000)]
    assert sum(path.stat().st_size for path in (local.folder / job_id).glob("output*")) == 3000


def test_following_goes_on_where_the_log_begins_a_new_part(local: LocalEngine, tmp_path: Path) -> None:
    wait = "import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)\n"
    path = str(tmp_path / "go-on")
    program = "print('first', flush=True)\n" + wait.format(path=path) + PRINT.format(lines=100)
    job_id = submit(local, python(program), LocalOptions(log_bytes=3000))
    lines = local.logs(job_id, follow=True)
    assert next(lines) == "first"
    Path(path).touch()
    assert list(lines) == [f"line {number:05} of a log" for number in range(100)]
    assert (local.folder / job_id / "output.2.log").exists()


def test_whoever_follows_too_slowly_is_told_what_is_missing(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 30)
    writer.write(b"0 first\n")
    lines = read_log(tmp_path, lambda: False)
    assert next(lines) == "0 first"
    for number in range(1, 10):
        writer.write(b"%d in all\n" % number)
    writer.finish()
    assert list(lines) == ["1 ", "[tonnage: 60 B of output were dropped here]", "", "8 in all", "9 in all"]


def test_letters_of_several_bytes_are_read_whole_across_parts(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 9)
    writer.write("ääää\n".encode())
    writer.finish()
    assert list(read_log(tmp_path, lambda: False)) == ["ääää"]


def test_variables_are_not_written_to_a_file(local: LocalEngine) -> None:
    job_id = submit(local, python("import os; print(os.environ['TOKEN'][::-1])", environment={"TOKEN": "s3cr3t"}))
    wait_for(local, job_id, is_over)
    assert list(local.logs(job_id)) == ["t3rc3s"]
    assert all(b"s3cr3t" not in path.read_bytes() for path in (local.folder / job_id).iterdir())


def test_a_job_sees_the_gpus_that_it_asked_for(tmp_path: Path) -> None:
    gpus = (HostGpu(index=0, name="NVIDIA L4", model="L4"), HostGpu(index=1, name="NVIDIA H200", model="H200"))
    engine = LocalEngine(tmp_path / "local", Host(cores=(0,), memory_bytes=1 << 40, gpus=gpus))
    show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    assert output(engine, python(show, name="one", resources=Resources(gpu_count=1, gpu="h200"))) == ["1"]
    assert output(engine, python(show, name="none")) == [""]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (Resources(cpu_cores=3), "3 CPU cores are wanted, this machine has 2: 1 too few"),
        (
            Resources(memory_bytes=3 << 30),
            "3.00 GiB of memory are wanted, this machine has 2.00 GiB: 1.00 GiB too little",
        ),
        (Resources(gpu_count=1), "1 GPUs are wanted, this machine has none"),
        (Resources(numa_node=1), "no NUMA node 1"),
    ],
)
def test_what_the_machine_does_not_have_is_refused(tmp_path: Path, resources: Resources, words: str) -> None:
    engine = LocalEngine(tmp_path / "local", Host(cores=(0, 1), memory_bytes=2 << 30))
    with pytest.raises(DoesNotFit, match=words):
        submit(engine, python("", resources=resources))
    assert list(engine.folder.iterdir()) == []


@pytest.mark.parametrize(
    "more", [{"ports": ((8080, 80),)}, {"mounts": (Mount(source="/a", target="/b"),)}, {"replicas": 2}]
)
def test_what_only_containers_can_do_is_refused(local: LocalEngine, more: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        local.plan(python("", **more), EngineOptions())


def test_a_taken_port_is_noticed_before_the_start(local: LocalEngine) -> None:
    import socket

    port = free_port()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(UsageError, match=f"port {port} is taken"):
        submit(local, python("", ports=((port, port),)))
