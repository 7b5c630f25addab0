"""What the Slurm engine would submit, kept as files, and what it makes of Slurm's answers; no cluster is needed."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.engines import slurm_client, slurm_inventory, slurm_states
from tonnage.engines.base import Job, JobId, JobState, Mount, NodeInventory, Placement, Resources, Source
from tonnage.engines.options import parse_options
from tonnage.engines.registry import find_engine
from tonnage.engines.slurm import SlurmEngine
from tonnage.engines.slurm_script import SlurmOptions, Terms, render
from tonnage.errors import DoesNotFit, NotFound, TonnageError, Unreachable, UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "engines"
GIB = 1 << 30
SINGLE = Job(
    name="train-vit",
    command=("/usr/bin/python3", "train.py", "--name", "a b"),
    source=Source(files={"train.py": b"import model\n", "model.py": b"LAYERS = 12\n"}, digest="", entry="train.py"),
    copied_words=(1,),
    workdir="/home/me",
    resources=Resources(cpu_cores=5.5, memory_bytes=48 * GIB, gpu_count=2, gpu="H200"),
    environment={"OMP_NUM_THREADS": "5"},
    node_type="hopper",
)
EQUAL = Job(
    name="train-wide",
    command=("train", "--steps", "100"),
    resources=Resources(cpu_cores=4, memory_bytes=GIB),
    placements=tuple(Placement(node=node, gpu="A100 SXM 80GB", gpu_indices=(0, 1)) for node in ("n2", "n1")),
    after=(JobId("prepare"), JobId("fetch")),
    requeue=True,
)
UNEQUAL = replace(
    EQUAL,
    name="train-mixed",
    placements=(
        Placement(node="n1", gpu="V100 SXM2 16GB", gpu_indices=(0, 1)),
        Placement(gpu="RTX 4090", gpu_indices=(0,), share=0.5),
    ),
    after=(),
    requeue=False,
)
SCRIPTS = {
    "slurm-train.sh": (SINGLE, SlurmOptions()),
    "slurm-equal.sh": (EQUAL, SlurmOptions(partition="gpu", account="vision", time="2:00:00", folder="/shared/jobs")),
    "slurm-unequal.sh": (
        UNEQUAL,
        SlurmOptions(qos="high", reservation="week", gpu_types="V100 SXM2 16GB=volta", shards=5, extra="--exclude=n9"),
    ),
}


@pytest.mark.parametrize("file", SCRIPTS)
def test_scripts_are_as_they_were(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # a plan asks nobody
    job, options = SCRIPTS[file]
    assert SlurmEngine().plan(job, options).text == (GOLDEN / file).read_text()


@pytest.mark.parametrize("file", SCRIPTS)
def test_scripts_are_valid_for_bash(file: str) -> None:
    subprocess.run(["bash", "-n", GOLDEN / file], check=True)


def test_the_engine_is_known_by_its_name() -> None:
    engine = find_engine("slurm")
    options = parse_options(engine.Options, ["partition=gpu", "restarts=1", "node_types=no"])
    assert options == SlurmOptions(partition="gpu", restarts=1, node_types=False)


words = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30)


@given(command=st.lists(words, min_size=1, max_size=4), folder=words, workdir=words, account=words)
def test_whatever_words_there_are_they_stay_words(command: list[str], folder: str, workdir: str, account: str) -> None:
    job = Job(name="x", command=tuple(command), workdir=f"/{workdir}")
    text = render(job, SlurmOptions(account=account), Terms(folder=f"/{folder}"))
    directives = [shlex.split(line)[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert f"--chdir=/{workdir}" in directives
    assert (f"--account={account}" in directives) == bool(account)
    assert f"{{ {shlex.join(command)} 2>&3" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": "python:3"}, "without an image"),
        ({"mounts": (Mount(source="/a", target="/b"),)}, "mounted"),
        ({"ports": ((80, 80),)}, "ports"),
        ({"replicas": 2}, "no service"),
        ({"command": ()}, "no command"),
        ({"resources": Resources(numa_node=0)}, "NUMA"),
        ({"environment": {"SBATCH_QOS": "x"}}, "SBATCH_QOS is Slurm's own"),
        ({"source": Source(files={}, digest="", requirements=("numpy",))}, "installed"),
        ({"placements": (Placement(node="a"), Placement(node="a"))}, "2 placements are on a"),
        ({"placements": (Placement(node="a,b"),)}, "name of a node"),
        ({"placements": (Placement(node="--help"),)}, "name of a node"),
        ({"placements": (Placement(share=0.5, gpu_indices=(0, 1)),)}, "2 GPUs are to be shared"),
        ({"placements": (Placement(share=1.5),)}, "1.5 of a GPU"),
    ],
)
def test_what_slurm_cannot_do_is_refused(changes: dict[str, object], said: str) -> None:
    job = replace(Job(name="x", command=("true",)), **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=said):
        SlurmEngine().plan(job, SlurmOptions())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SlurmOptions(partition="a\n#SBATCH --uid=0"), "several lines"),
        (SlurmOptions(extra="--exclusive command"), "'command' is no option"),
        (SlurmOptions(extra="--comment='"), "quotation"),
        (SlurmOptions(gpu_types="H200"), "is not GPU=TYPE"),
        (SlurmOptions(restarts=-1), "negative"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: SlurmOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        SlurmEngine().plan(Job(name="x", command=("true",)), options)


# -- Slurm's answers ------------------------------------------------------------------------------------------------------


def node(**changes: object) -> NodeInventory:
    base = NodeInventory(name="n0", gpus={}, cpu_cores=8, memory_bytes=GIB)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gpu", "kinds", "found"),
    [
        ("A100 SXM 80GB", ("a100", "h100"), "a100"),
        ("A100 SXM 80GB", ("a100", "nvidia_a100-sxm4-80gb"), "nvidia_a100-sxm4-80gb"),  # as NVML detects it
        ("RTX 4090", ("rtx_4090",), "rtx_4090"),
        ("RTX 4090", ("nvidia_geforce_rtx_4090",), "nvidia_geforce_rtx_4090"),
        ("V100 SXM2 16GB", ("v100", "v100-32g"), "v100"),
    ],
)
def test_gpus_are_found_by_what_clusters_call_them(gpu: str, kinds: tuple[str, ...], found: str) -> None:
    assert slurm_inventory.offered_type(gpu, [node(gpus=dict.fromkeys(kinds, 4))]) == found


@pytest.mark.parametrize("kinds", [("h100",), ("",), ()])
def test_a_gpu_that_the_cluster_does_not_name_is_refused(kinds: tuple[str, ...]) -> None:
    with pytest.raises(DoesNotFit, match="a100"):
        slurm_inventory.offered_type("A100 SXM 80GB", [node(gpus=dict.fromkeys(kinds, 4))])


def test_nodes_are_read_from_what_scontrol_prints() -> None:
    line = (
        "NodeName=n7 CPUTot=16 AvailableFeatures=(null) Gres=gpu:v100:4(S:0-1),gpu:k80:2(S:1),shard:v100:16(S:0),gpu:1 "
        "RealMemory=2048 State=IDLE+DRAIN Reason=fan State=IDLE\n"
    )
    (found,) = slurm_inventory.parse_nodes(line)
    assert found == NodeInventory(
        name="n7", gpus={"v100": 4, "k80": 2, "": 1}, shards={"v100": 16}, cpu_cores=16, memory_bytes=2 * GIB,
        state="IDLE+DRAIN", is_up=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "code", "kind", "exit_code"),
    [
        ("COMPLETED", "0:0", JobState.SUCCEEDED, 0),
        ("FAILED", "7:0", JobState.FAILED, 7),
        ("FAILED", "0:9", JobState.FAILED, 137),
        ("CANCELLED by 1000", "0:15", JobState.CANCELLED, 143),
        ("OUT_OF_MEMORY", "0:125", JobState.FAILED, 253),
        ("SOMETHING_NEW", "0:0", JobState.UNKNOWN, 0),
    ],
)
def test_the_accounts_tell_how_a_job_ended(state: str, code: str, kind: JobState, exit_code: int) -> None:
    (record,) = slurm_states.parse_sacct(f"12|{state}|None|{code}|1700000000|1700000060\n")
    assert (record.kind, record.exit_code, record.ended_at) == (kind, exit_code, 1700000060.0)


def test_an_unknown_state_is_unknown_and_is_told() -> None:
    record = slurm_states.Record(slurm_id="1", state="SOMETHING_NEW")
    status = slurm_states.status_of(record, devices=(), output="", memory="")
    assert (status.state, status.reason) == (JobState.UNKNOWN, "Slurm says: SOMETHING_NEW")


@pytest.mark.parametrize(
    ("state", "output", "reason"),
    [
        ("OUT_OF_MEMORY", "", "killed for memory: its limit is 1 GiB"),
        ("FAILED", "slurmstepd: error: Detected 1 oom-kill event(s)", "killed for memory: its limit is 1 GiB"),
        ("FAILED", "the program's own word: oom-kill", "killed by SIGKILL"),
        ("TIMEOUT", "", "it ran into its time limit"),
        ("PREEMPTED", "", "it had to make room for another job"),
    ],
)  # fmt: skip
def test_why_a_job_failed_is_told(state: str, output: str, reason: str) -> None:
    record = slurm_states.Record(slurm_id="1", state=state, exit_code=137)
    assert slurm_states.status_of(record, devices=(), output=output, memory="1 GiB").reason == reason


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", Unreachable,
         "Slurm does not answer: Unable to contact slurm controller (connect failure)"),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", slurm_client.Silent,
         "Slurm does not answer: Socket timed out on send/recv operation"),
        ("sbatch: error: Batch job submission failed: Protocol authentication error", Unreachable,
         "Slurm does not answer: Protocol authentication error"),
        ("slurm_load_jobs error: Invalid job id specified", NotFound, "Slurm says: Invalid job id specified"),
        ("sbatch: unrecognized option '--foo'\nTry \"sbatch --help\" for more information", UsageError,
         "sbatch says: sbatch: unrecognized option '--foo'"),
        ("", UsageError, "sbatch says: no word about why"),
    ],
)  # fmt: skip
def test_errors_are_one_sentence_of_the_right_kind(said: str, kind: type[TonnageError], message: str) -> None:
    error = slurm_client.error("sbatch", said)
    assert (type(error) is kind or isinstance(error, kind), error.message) == (True, message)
