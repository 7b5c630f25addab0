"""Jobs on a real Slurm of several unequal nodes: the contract, devices, ranks, restarts, losses, and nothing run twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from contract import PROGRAMS, EngineContract, is_over, wait_for
from slurm_rig import SlurmRig, slurm, slurm_rig, wait_until

from tonnage.engines import slurm_client
from tonnage.engines.base import (
    EngineOptions,
    HasInventory,
    Job,
    JobId,
    JobState,
    JobStatus,
    Placement,
    Resources,
    Source,
)
from tonnage.engines.deploying import Deployments, deploy
from tonnage.engines.names import fresh_name
from tonnage.engines.slurm import SlurmEngine
from tonnage.engines.slurm_client import Silent
from tonnage.engines.slurm_folder import JobFolder
from tonnage.engines.slurm_script import SlurmOptions
from tonnage.errors import DoesNotFit, NotFound, Unreachable, UsageError

__all__ = ["slurm", "slurm_rig"]

MIB = 1 << 20
V100, P100, K80 = "V100 SXM2 16GB", "P100 SXM2", "K80"
SHOW = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
SMALL = Resources(cpu_cores=1, memory_bytes=256 * MIB)
ONE_GPU = replace(SMALL, gpu_count=1)


def python(program: str, **changes: object) -> Job:
    job = Job(name=fresh_name("job"), command=(sys.executable, "-c", program), resources=SMALL)
    return replace(job, **changes)  # type: ignore[arg-type]


class TestSlurmEngine(EngineContract):
    @pytest.fixture
    def engine(self, slurm: SlurmEngine) -> SlurmEngine:
        return slurm

    def job(self, program: str) -> Job:
        return python(PROGRAMS[program], name="contract")


def submit(engine: SlurmEngine, job: Job, options: EngineOptions | None = None) -> JobId:
    return engine.submit(engine.plan(job, options or SlurmOptions()))


def finish(engine: SlurmEngine, job: Job, options: EngineOptions | None = None) -> tuple[JobStatus, list[str]]:
    job_id = submit(engine, job, options)
    return wait_for(engine, job_id, is_over), list(engine.logs(job_id))


def is_running(status: JobStatus) -> bool:
    return status.state is JobState.RUNNING


def runs_with_devices(status: JobStatus) -> bool:
    return is_running(status) and bool(status.devices)


# -- devices --------------------------------------------------------------------------------------------------------------


def test_a_job_sees_the_devices_of_its_placement(slurm: SlurmEngine) -> None:
    placement = Placement(node="p100n1", gpu=P100, gpu_indices=(0, 1))
    status, printed = finish(slurm, python(SHOW, placements=(placement,)))
    assert printed == ["0,1"]
    assert status.devices == ("p100n1/gpu0", "p100n1/gpu1")


def test_a_job_without_gpus_sees_none(slurm: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    status, printed = finish(slurm, python(SHOW))
    assert (printed, status.devices) == ([""], ())


def test_two_jobs_at_once_never_have_the_same_device(slurm: SlurmEngine) -> None:
    whole = Placement(node="k80n0", gpu=K80, gpu_indices=(0,))
    jobs = [submit(slurm, python(PROGRAMS["sleep"], placements=(whole,))) for _ in range(4)]
    devices = [device for job_id in jobs for device in wait_for(slurm, job_id, runs_with_devices).devices]
    assert sorted(devices) == [f"k80n0/gpu{index}" for index in range(4)]


def test_two_halves_share_one_device(slurm: SlurmEngine) -> None:
    half = Placement(node="v100n0", gpu=V100, gpu_indices=(0,), share=0.5)
    jobs = [submit(slurm, python(PROGRAMS["sleep"], placements=(half,))) for _ in range(2)]
    assert [wait_for(slurm, job_id, runs_with_devices).devices for job_id in jobs] == [("v100n0/gpu0",)] * 2
    assert "--gres=shard:v100:2\n" in JobFolder(slurm.folder / jobs[0]).path.joinpath("job.sh").read_text()


def test_a_half_is_a_whole_where_the_cluster_divides_none(slurm: SlurmEngine) -> None:
    half = Placement(node="p100n0", gpu=P100, gpu_indices=(0,), share=0.5)
    jobs = [submit(slurm, python(PROGRAMS["sleep"], placements=(half,))) for _ in range(2)]
    devices = [wait_for(slurm, job_id, runs_with_devices).devices for job_id in jobs]
    assert sorted(devices) == [("p100n0/gpu0",), ("p100n0/gpu1",)]


def test_the_type_of_node_is_a_feature(slurm: SlurmEngine) -> None:
    job = python("import os; print(os.environ['SLURMD_NODENAME'])", node_type="type-k80")
    assert finish(slurm, job)[1] == ["k80n0"]
    with pytest.raises(NotFound, match="feature hopper"):
        submit(slurm, python(SHOW, node_type="hopper"))
    assert finish(slurm, python("print(1)", node_type="hopper"), SlurmOptions(node_types=False))[1] == ["1"]


def test_what_no_node_has_is_refused_and_leaves_nothing(slurm: SlurmEngine) -> None:
    with pytest.raises(DoesNotFit, match="k80, p100, v100"):
        submit(slurm, python(SHOW, resources=replace(ONE_GPU, gpu="H200"), name="too-new"))
    with pytest.raises(DoesNotFit, match="not available"):
        submit(slurm, python(SHOW, resources=replace(ONE_GPU, gpu=K80, gpu_count=9), name="too-many"))
    with pytest.raises(NotFound, match="node name"):
        submit(slurm, python(SHOW, placements=(Placement(node="nowhere"),), name="nowhere"))
    with pytest.raises(NotFound, match="partition"):
        submit(slurm, python(SHOW, name="no-partition"), SlurmOptions(partition="none"))
    assert list(slurm.jobs()) == []


def test_the_inventory_tells_nodes_gpus_and_who_is_away(slurm: SlurmEngine, slurm_rig: SlurmRig) -> None:
    assert isinstance(slurm, HasInventory)
    slurm_rig.control("update", "NodeName=p100n0", "State=DRAIN", "Reason=State=IDLE and other lies")
    nodes = {node.name: node for node in slurm.inventory()}
    slurm_rig.control("update", "NodeName=p100n0", "State=RESUME")
    assert [name for name, node in nodes.items() if not node.is_up] == ["p100n0"]
    v100 = nodes["v100n0"]
    assert (v100.gpus, v100.shards, v100.cpu_cores, v100.memory_bytes) == ({"v100": 4}, {"v100": 16}, 64, 64000 * MIB)
    assert v100.features == ("v100", "type-v100")


# -- several processes ----------------------------------------------------------------------------------------------------

RANKS = (
    "import os; e = os.environ; "
    "print(e['RANK'], e['WORLD_SIZE'], e['LOCAL_RANK'], e['SLURMD_NODENAME'], e['CUDA_VISIBLE_DEVICES'], e['MASTER_ADDR'])"
)


def test_equal_placements_are_ranks_in_the_order_of_the_plan(slurm: SlurmEngine) -> None:
    placements = tuple(Placement(node=node, gpu=P100, gpu_indices=(0,)) for node in ("p100n1", "p100n0"))
    status, printed = finish(slurm, python(RANKS, placements=placements))
    assert sorted(printed) == ["0 2 0 p100n1 0 127.0.0.1", "1 2 0 p100n0 0 127.0.0.1"]
    assert status.devices == ("p100n1/gpu0", "p100n0/gpu0")


def test_unequal_placements_are_one_heterogeneous_job(slurm: SlurmEngine) -> None:
    placements = (
        Placement(node="v100n1", gpu=V100, gpu_indices=(0, 1)),
        Placement(gpu=K80, gpu_indices=(0,)),
        Placement(node="p100n0", gpu=P100, gpu_indices=(1,)),
    )
    status, printed = finish(slurm, python(RANKS, placements=placements))
    assert sorted(line.split()[:5] for line in printed) == [
        ["0", "3", "0", "v100n1", "0,1"], ["1", "3", "0", "k80n0", "0"], ["2", "3", "0", "p100n0", "0"],
    ]  # fmt: skip
    assert status.devices == ("v100n1/gpu0", "v100n1/gpu1", "k80n0/gpu0", "p100n0/gpu0")


def test_the_code_of_the_process_that_failed_is_that_of_the_job(slurm: SlurmEngine) -> None:
    program = "import os, sys, time; sys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)"
    placements = tuple(Placement(node=node) for node in ("p100n0", "p100n1"))
    status, _ = finish(slurm, python(program, placements=placements, requeue=True))
    assert (status.state, status.exit_code, status.restarts) == (JobState.FAILED, 7, 0)


def test_processes_find_each_other(slurm: SlurmEngine) -> None:
    program = (
        "import os, socket; e = os.environ; place = (e['MASTER_ADDR'], int(e['MASTER_PORT']))\n"
        "if e['RANK'] == '0':\n"
        "    server = socket.create_server(place); print(server.accept()[0].recv(9).decode())\n"
        "else:\n"
        "    import time\n"
        "    while True:\n"
        "        try: socket.create_connection(place).sendall(b'hello'); break\n"
        "        except OSError: time.sleep(0.05)\n"
    )
    job = python(program, placements=(Placement(), Placement()))
    assert finish(slurm, job)[1] == ["hello"]


# -- order, restarts and losses -------------------------------------------------------------------------------------------


def test_a_job_starts_after_others_are_over_however_they_ended(slurm: SlurmEngine) -> None:
    first = submit(slurm, python("import sys, time; time.sleep(1); sys.exit(3)"))
    second = submit(slurm, python("print('then')", after=(first,)))
    assert wait_for(slurm, second, lambda status: bool(status.reason)).reason == "waits for other jobs to end"
    after, before = wait_for(slurm, second, is_over), slurm.state(first)
    assert (before.state, after.state) == (JobState.FAILED, JobState.SUCCEEDED)
    assert (after.started_at or 0) >= (before.ended_at or time.time())
    assert finish(slurm, python("print('late')", after=(first,)))[1] == ["late"]
    with pytest.raises(NotFound, match="nobody"):
        submit(slurm, python("", after=(JobId("nobody"),)))


KILLED_ONCE = (
    "import os, signal; again = 'SLURM_RESTART_COUNT' in os.environ; print('again' if again else 'first', flush=True)\n"
    "again or os.kill(os.getpid(), signal.SIGKILL)"
)


def test_killed_jobs_are_requeued_if_they_may_and_only_so_often(slurm: SlurmEngine) -> None:
    """All at once: Slurm lets a requeued job wait for some seconds."""
    once = submit(slurm, python(KILLED_ONCE, requeue=True))
    always = submit(slurm, python("import os; os.kill(os.getpid(), 9)", requeue=True), SlurmOptions(restarts=1))
    never = submit(slurm, python(KILLED_ONCE))
    told = submit(
        slurm, python("import os, time; 'SLURM_RESTART_COUNT' in os.environ or time.sleep(600)", requeue=True)
    )
    wait_for(slurm, told, is_running)
    slurm_client.run("scontrol", "requeue", JobFolder(slurm.folder / told).slurm_id)
    ends = [wait_for(slurm, job_id, is_over) for job_id in (once, always, never, told)]
    assert [(end.state, end.exit_code, end.restarts) for end in ends] == [
        (JobState.SUCCEEDED, 0, 1), (JobState.FAILED, 137, 1), (JobState.FAILED, 137, 0), (JobState.SUCCEEDED, 0, 1),
    ]  # fmt: skip
    assert ends[2].reason == "killed by SIGKILL"
    lines = [line for line in slurm.logs(once) if not line.startswith("slurmstepd")]
    assert lines == ["first", "again"]


def test_a_lost_node_is_told_and_its_jobs_go_elsewhere_if_they_may(slurm: SlurmEngine, slurm_rig: SlurmRig) -> None:
    """A GPU of one model that two nodes have: the job that may be started again goes to the other one."""
    filler = submit(
        slurm, python(PROGRAMS["sleep"], placements=(Placement(node="p100n1", gpu=P100, gpu_indices=(0, 1)),))
    )
    wait_for(slurm, filler, is_running)
    program = "import os, time; 'SLURM_RESTART_COUNT' in os.environ or time.sleep(600)"
    job = python(program, resources=replace(ONE_GPU, gpu=P100))
    moving, staying = submit(slurm, replace(job, requeue=True)), submit(slurm, replace(job, name=fresh_name("stays")))
    devices = [wait_for(slurm, job_id, runs_with_devices).devices for job_id in (moving, staying)]
    assert sorted(devices) == [("p100n0/gpu0",), ("p100n0/gpu1",)]
    slurm.cancel(filler)
    slurm_rig.lose("p100n0")
    try:
        assert {node.name for node in slurm.inventory() if not node.is_up} == {"p100n0"}
        lost, moved = wait_for(slurm, staying, is_over), wait_for(slurm, moving, is_over)
    finally:
        slurm_rig.find("p100n0")
    assert (lost.state, lost.reason, lost.restarts) == (JobState.FAILED, "its node was lost", 0)
    assert (moved.state, moved.restarts) == (JobState.SUCCEEDED, 1)
    assert moved.devices[0].startswith("p100n1/")


def test_a_job_killed_for_memory_says_so(slurm: SlurmEngine) -> None:
    status, _ = finish(slurm, python("x = bytearray(600 << 20); import time; time.sleep(30)"))
    assert (status.state, status.reason) == (JobState.FAILED, "killed for memory: its limit is 256 MiB")


def test_a_time_limit_is_kept(slurm: SlurmEngine) -> None:
    with pytest.raises(UsageError, match="time"):
        submit(slurm, python(""), SlurmOptions(time="soon"))
    job_id = submit(slurm, python("import time; time.sleep(0.1)"), SlurmOptions(time="5", partition="small"))
    shown = slurm_client.run("scontrol", "show", "job", JobFolder(slurm.folder / job_id).slurm_id)
    assert {"TimeLimit=00:05:00", "Partition=small"} <= set(shown.split())
    wait_for(slurm, job_id, is_over)


# -- files and variables --------------------------------------------------------------------------------------------------


def test_the_job_runs_from_a_copy_in_the_shared_folder(slurm: SlurmEngine, tmp_path: Path) -> None:
    shared = tmp_path / "100% shared"
    shared.mkdir()
    source = Source(
        files={"train.py": b"import model", "model.py": b"print('from', __file__)"}, digest="", entry="train.py"
    )
    job = python("", command=(sys.executable, "train.py"), source=source, copied_words=(1,), workdir=str(tmp_path))
    job_id = submit(slurm, job, SlurmOptions(folder=str(shared)))
    wait_for(slurm, job_id, is_over)
    assert list(slurm.logs(job_id)) == [f"from {shared}/{job_id}/program/model.py"]
    slurm.remove(job_id)
    assert list(shared.iterdir()) == []


def test_variables_arrive_and_no_file_keeps_them(slurm: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    monkeypatch.setenv("SBATCH_JOB_NAME", "other")
    job = python("import os; print(os.environ['SECRET'])", environment={"SECRET": "two\nlines $HOME"})
    _, printed = finish(slurm, job, SlurmOptions(partition="all"))
    assert printed == ["two", "lines $HOME"]
    kept = [path for path in (slurm.folder / job.name).iterdir() if path.name != "output.log"]
    assert not any("lines" in path.read_text() for path in kept)


# -- once and only once ---------------------------------------------------------------------------------------------------

DIES = """
import os, signal, sys
from pathlib import Path
from tonnage.engines.base import Job
from tonnage.engines.slurm import SlurmEngine
from tonnage.engines.slurm_folder import JobFolder

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(*{"before": (SlurmEngine, "_sbatch"), "after": (JobFolder, "write_id")}[sys.argv[1]], die)
engine = SlurmEngine(Path(sys.argv[2]))
engine.submit(engine.plan(Job(name="cut-off", command=(sys.executable, "-c", "print('ran')")), engine.Options()))
"""
CUT_OFF = Job(name="cut-off", command=(sys.executable, "-c", "print('ran')"))


def submit_and_die(engine: SlurmEngine, when: str) -> None:
    done = subprocess.run([sys.executable, "-c", DIES, when, engine.folder], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_job_whose_submitter_died_after_sbatch_is_found_and_runs_once(slurm: SlurmEngine) -> None:
    submit_and_die(slurm, "after")
    with pytest.raises(UsageError, match="cut-off already"):
        submit(slurm, CUT_OFF)
    assert wait_for(slurm, JobId("cut-off"), is_over).state is JobState.SUCCEEDED
    assert list(slurm.logs(JobId("cut-off"))) == ["ran"]


def test_a_job_whose_submitter_died_before_sbatch_can_be_submitted_again(slurm: SlurmEngine) -> None:
    submit_and_die(slurm, "before")
    assert slurm.state(JobId("cut-off")).state is JobState.UNKNOWN
    slurm.cancel(JobId("cut-off"))
    assert finish(slurm, CUT_OFF)[1] == ["ran"]


def test_an_interrupted_submission_is_withdrawn(slurm: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    job = python(PROGRAMS["sleep"])
    monkeypatch.setattr(JobFolder, "write_id", interrupt)
    with pytest.raises(KeyboardInterrupt):
        submit(slurm, job)
    wait_until(lambda: not slurm_client.run("squeue", "--noheader", f"--name={job.name}"))
    assert list(slurm.jobs()) == []


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def replace_sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """An sbatch whose answer gets lost."""
    real, fake = shutil.which("sbatch"), folder / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{before.format(sbatch=real)}\necho 'sbatch: error: Socket timed out' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")


def test_a_lost_answer_is_looked_up(slurm: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_sbatch(tmp_path, monkeypatch, '{sbatch} "$@"')
    assert finish(slurm, python("print('once')"))[1] == ["once"]


def test_a_request_that_nobody_answered_can_be_made_again(
    slurm: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = python("print('once')")
    with monkeypatch.context() as patch:
        replace_sbatch(tmp_path, patch, "true")
        with pytest.raises(Silent, match="timed out"):
            submit(slurm, job)
    assert finish(slurm, job)[1] == ["once"]


def test_a_request_that_arrives_late_does_nothing(
    slurm: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request is accepted only after the second one was."""
    job, late = python("print('once')"), tmp_path / "late.sh"
    with monkeypatch.context() as patch:
        replace_sbatch(tmp_path, patch, f'cp "$2" {late}')
        with pytest.raises(Silent):
            submit(slurm, job)
    finish(slurm, job)
    slurm_client.run("sbatch", "--wait", str(late), environment=os.environ)
    assert list(slurm.logs(JobId(job.name))) == ["once"]


def test_the_same_name_from_another_folder_is_refused_while_it_runs(slurm: SlurmEngine, tmp_path: Path) -> None:
    job = python(PROGRAMS["sleep"])
    submit(slurm, job)
    with pytest.raises(UsageError, match="already"):
        submit(SlurmEngine(tmp_path / "elsewhere"), job)


def test_without_a_controller_nothing_is_left_half_submitted(slurm: SlurmEngine, slurm_rig: SlurmRig) -> None:
    job, deployments = python("print(1)"), Deployments()
    slurm_rig.stop("slurmctld")
    try:
        with pytest.raises(Unreachable, match="Slurm does not answer") as caught:
            deploy(job, slurm, SlurmOptions(), deployments)
    finally:
        slurm_rig.start("slurmctld")
        wait_until(slurm_rig.is_ready)
    assert caught.value.exit_code == 5
    assert (list(deployments.all()), list(slurm.jobs())) == ([], [])
    assert finish(slurm, job)[1] == ["1"]


def test_without_the_commands_the_engine_says_so(
    slurm: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(Unreachable, match="squeue is not installed"):
            submit(slurm, python(""))


# -- many, and long ago ---------------------------------------------------------------------------------------------------


def test_200_jobs_are_submitted_and_listed_in_reasonable_time(slurm: SlurmEngine) -> None:
    jobs = [python("", name=f"many-{number}") for number in range(200)]
    started = time.monotonic()
    for job in jobs:
        submit(slurm, job, SlurmOptions(extra="--hold"))
    submitted = time.monotonic()
    listed = list(slurm.jobs())
    listing_seconds = time.monotonic() - submitted
    slurm_client.run("scancel", "--user=root")
    print(f"200 submitted in {submitted - started:.1f} s, listed in {listing_seconds:.2f} s")
    assert {status.state for _, status, _ in listed} == {JobState.PENDING}
    assert (len(listed), submitted - started < 40, listing_seconds < 2) == (200, True, True)


def test_what_slurm_has_forgotten_the_job_itself_tells(slurm: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    good, _ = finish(slurm, python("print(1)", name="good"))
    finish(slurm, python("import sys; sys.exit(3)", name="bad"))
    stopped = submit(slurm, python(PROGRAMS["sleep"], name="stopped"))
    slurm.cancel(stopped)
    monkeypatch.setattr(SlurmEngine, "_squeue", lambda *_: [])
    later = [slurm.state(JobId(name)) for name in ("good", "bad", "stopped")]
    assert [(status.state, status.exit_code) for status in later] == [
        (JobState.SUCCEEDED, 0), (JobState.FAILED, 3), (JobState.CANCELLED, None),
    ]  # fmt: skip
    assert abs((good.ended_at or 0) - (later[0].ended_at or time.time())) <= 1


def test_the_rig_listens_on_loopback_only(slurm_rig: SlurmRig) -> None:
    assert slurm_rig.listeners() == {"127.0.0.1"}
