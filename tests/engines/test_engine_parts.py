"""The small parts that engines are made of: registry, host, names, ports, options, programs, states of containers."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.engines import registry
from tonnage.engines.base import EngineOptions, Job, JobId, JobState, Resources
from tonnage.engines.bundle import bundle, digest_of
from tonnage.engines.container_arguments import ContainerOptions, choose
from tonnage.engines.container_client import DOCKER, PODMAN, Client
from tonnage.engines.container_environment import environment_arguments, lines, named
from tonnage.engines.container_states import container_status
from tonnage.engines.fake import FakeEngine
from tonnage.engines.host import (
    Host,
    HostGpu,
    NumaNode,
    cdi_devices,
    format_cores,
    node_for,
    parse_cores,
    read_device_node,
    read_host,
    read_numa_nodes,
)
from tonnage.engines.jobs import NOTHING_MORE, Hardware, Surroundings, job_of, resources_of
from tonnage.engines.kubernetes_manifest import KubernetesOptions
from tonnage.engines.local import LocalEngine, LocalOptions
from tonnage.engines.names import check_name, fresh_name, is_label_key, is_label_value, name_like
from tonnage.engines.options import parse_options
from tonnage.engines.ports import answers, check_ports, free_port, is_taken
from tonnage.errors import DoesNotFit, InvalidFile, NotFound, TonnageError, Unreachable, UsageError

GIB = 1 << 30

# -- registry -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["local", "podman", "docker", "kubernetes", "slurm", "ray"])
def test_our_engines_are_found_by_name(name: str) -> None:
    assert registry.find_engine(name).name == name


def test_an_unknown_engine_is_told_the_known_ones() -> None:
    with pytest.raises(NotFound) as caught:
        registry.find_engine("nomad")
    assert caught.value.hint == "known are local, podman, docker, kubernetes, slurm, ray"


def test_engines_come_from_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = EntryPoint("fake", "tonnage.engines.fake:FakeEngine", registry.GROUP)
    broken = EntryPoint("broken", "tonnage.engines.fake:Nothing", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [fake, broken])
    assert isinstance(registry.find_engine("fake"), FakeEngine)
    assert registry.engine_names()[-2:] == ("broken", "fake")
    with pytest.raises(UsageError, match="cannot be loaded"):
        registry.find_engine("broken")


# -- host -----------------------------------------------------------------------------------------------------------------


def test_numa_nodes_are_read_as_the_kernel_lists_them(tmp_path: Path) -> None:
    for index, cores in ((0, "0-1,4"), (10, "2-3")):
        folder = tmp_path / f"node{index}"
        folder.mkdir()
        (folder / "cpulist").write_text(f"{cores}\n")
        (folder / "meminfo").write_text(f"Node {index} MemTotal:       2048 kB\nNode {index} MemFree: 1 kB\n")
    assert read_numa_nodes(tmp_path) == (
        NumaNode(index=0, cores=(0, 1, 4), memory_bytes=2 << 20),
        NumaNode(index=10, cores=(2, 3), memory_bytes=2 << 20),
    )


@given(st.sets(st.integers(0, 300), max_size=40))
def test_lists_of_cores_are_written_as_they_are_read(cores: set[int]) -> None:
    assert parse_cores(format_cores(tuple(cores))) == tuple(sorted(cores))


def test_this_machine_has_cores_and_memory() -> None:
    host = read_host()
    assert host.cores
    assert host.memory_bytes > 1 << 28


def test_cdi_files_of_both_kinds_are_read(tmp_path: Path) -> None:
    devices = [{"name": name} for name in ("10", "2", "all", "gpu-x")]
    (tmp_path / "a.json").write_text(json.dumps({"kind": "nvidia.com/gpu", "devices": devices}))
    (tmp_path / "b.yaml").write_text("kind: nvidia.com/gpu\ndevices: [{name: '0'}, {name: '2'}]\n")
    (tmp_path / "c.yaml").write_text("kind: other.com/nic\ndevices: [{name: '7'}]\n")
    (tmp_path / "d.json").write_text("{ broken")
    (tmp_path / "e.json").write_text("[]")
    assert cdi_devices("nvidia.com/gpu", [tmp_path, tmp_path / "none"]) == ("0", "2", "10", "gpu-x")


# -- names, ports, options ------------------------------------------------------------------------------------------------


@given(st.text(max_size=80))
def test_every_program_gets_a_valid_name(text: str) -> None:
    assert check_name(fresh_name(text))
    assert check_name(name_like(text))


def test_fresh_names_differ() -> None:
    assert len({fresh_name("train") for _ in range(50)}) > 45


@pytest.mark.parametrize(
    ("text", "is_one"), [("", True), ("a.b_c-1", True), ("-a", False), ("a" * 64, False), ("ä", False)]
)
def test_values_of_labels(text: str, is_one: bool) -> None:
    assert is_label_value(text) is is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a", True), ("example.com/a.b", True), ("", False), ("/a", False), ("a/b/c", False), ("A.b/c", False)],
)
def test_names_of_labels(text: str, is_one: bool) -> None:
    assert is_label_key(text) is is_one


def test_a_port_with_a_server_is_taken_and_answers() -> None:
    port = free_port()
    assert not is_taken(port)
    assert not answers(port)
    with socket.create_server(("127.0.0.1", port)):
        assert is_taken(port)
        assert answers(port)


@pytest.mark.parametrize("ports", [[(0, 1)], [(1, 65536)], [(80, 1), (80, 2)]])
def test_impossible_ports_are_refused(ports: list[tuple[int, int]]) -> None:
    with pytest.raises(UsageError, match="port"):
        check_ports(ports)


def test_options_are_read_by_their_types() -> None:
    assert parse_options(KubernetesOptions, ["namespace=ml", "dra=yes", "user=7"]) == KubernetesOptions(
        namespace="ml", dra=True, user=7
    )
    assert parse_options(ContainerOptions, ["network=a=b"]) == ContainerOptions(network="a=b")


@pytest.mark.parametrize("pair", ["dra=perhaps", "user=x", "nothing=1", "namespace", "=x"])
def test_wrong_options_are_refused(pair: str) -> None:
    with pytest.raises(UsageError, match="-o"):
        parse_options(KubernetesOptions, [pair])


def test_an_engine_without_options_says_so() -> None:
    with pytest.raises(UsageError) as caught:
        parse_options(EngineOptions, ["x=1"])
    assert "none" in caught.value.hint


# -- the program and its job ----------------------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path: Path) -> Path:
    files = {
        "train.py": "import json, helper\nfrom package.deep import thing\nfrom package import other\n",
        "helper.py": "import train\n",
        "package/__init__.py": "from . import sibling\n",
        "package/sibling.py": "",
        "package/deep.py": "from .sibling import x\n",
        "package/other.py": "",
        "unused.py": "",
        "data.csv": "1",
        "__pycache__/x.pyc": "",
    }
    for name, text in files.items():
        (tmp_path / "program" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "program" / name).write_text(text)
    return tmp_path / "program" / "train.py"


def test_a_script_takes_along_what_it_imports(script: Path) -> None:
    source = bundle(script)
    assert source.entry == "train.py"
    assert sorted(source.files) == [
        "helper.py", "package/__init__.py", "package/deep.py", "package/other.py", "package/sibling.py", "train.py"
    ]  # fmt: skip


def test_a_folder_is_taken_as_a_whole(script: Path) -> None:
    source = bundle(script.parent / "package" / "deep.py", folder=script.parent)
    assert source.entry == "package/deep.py"
    assert {"data.csv", "unused.py"} < set(source.files)
    assert "__pycache__/x.pyc" not in source.files


def test_the_digest_of_one_file_is_that_of_sha256sum() -> None:
    assert digest_of({"a": b"abc"}) == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_of({"a": b"abc", "b": b""}) != digest_of({"a": b"abc", "c": b""})


def test_a_job_of_a_label_has_its_hardware(script: Path) -> None:
    hardware = Hardware(
        gpu="H200", gpu_count=2, cpu_cores=8, sockets=1, memory_bytes=32 * GIB, loader_workers=4, pinned_memory=True
    )
    job = job_of(hardware, script, ["--x"], image="python:3")
    assert job.command == ("python3", "train.py", "--x")
    assert (job.resources.gpu, job.resources.gpu_count, job.resources.one_numa_node) == ("H200", 2, True)
    assert job.resources.shared_memory_bytes == 16 * GIB
    assert job.environment["TONNAGE_LOADER_WORKERS"] == "4"
    assert job.labels["tonnage.program-digest"].startswith("sha256:")


def test_a_local_job_runs_where_the_user_is(script: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    job = job_of(Hardware(), Path("program/train.py"))
    assert (job.command[1], job.workdir) == (str(script), str(tmp_path))


def test_a_recorded_local_job_runs_from_what_was_read(script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import helper, os, sys; print(helper.WORD, os.getcwd(), sys.path[0] == os.path.dirname(__file__))"
    )
    (script.parent / "helper.py").write_text("WORD = 'read'")
    engine, job = LocalEngine(tmp_path / "local"), job_of(Hardware(), script, record=True)
    (script.parent / "helper.py").write_text("WORD = 'changed since'")
    job_id = engine.submit(engine.plan(job, EngineOptions()))
    assert list(engine.logs(job_id, follow=True)) == [f"read {Path.cwd()} True"]
    assert "a private copy of helper.py, train.py" in engine.plan(job, EngineOptions()).text


def test_several_sockets_are_not_bound_to_one_node() -> None:
    assert not resources_of(Hardware(sockets=2, memory_bytes=GIB), NOTHING_MORE).one_numa_node
    chosen = resources_of(Hardware(sockets=1), Surroundings(environment={}, labels={}, numa_node=3))
    assert (chosen.numa_node, chosen.one_numa_node) == (3, False)


TWO_SOCKETS = Host(
    cores=tuple(range(12)),
    memory_bytes=128 * GIB,
    nodes=tuple(NumaNode(index=i, cores=cores, memory_bytes=64 * GIB) for i, cores in ((0, (0, 1, 2, 3)), (1, (4, 5)))),
    gpus=tuple(
        HostGpu(index=i, name="NVIDIA L4", model="L4", numa_node=node) for i, node in enumerate((1, 0, 1, None))
    ),
)


@pytest.mark.parametrize(
    ("gpus", "cores", "node"),
    [
        ([], 1, 0),
        (["nvidia.com/gpu=0"], 2, 1),
        (["nvidia.com/gpu=1"], 2, 0),
        (["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=2"], 2, 1),
        (["nvidia.com/gpu=3"], 2, 0),  # the machine does not say where it is
        (["nvidia.com/gpu=0"], 3, 0),  # its node is too small
        (["nvidia.com/gpu=0"], 5, None),
    ],
)
def test_a_job_of_one_socket_is_at_its_gpus(gpus: list[str], cores: int, node: int | None) -> None:
    resources = Resources(cpu_cores=cores, gpu_count=len(gpus), one_numa_node=True)
    assert node_for(resources, TWO_SOCKETS, gpus) == node
    assert node_for(replace(resources, numa_node=7), TWO_SOCKETS, gpus) == 7
    assert node_for(replace(resources, one_numa_node=False), TWO_SOCKETS, gpus) is None


def test_containers_and_processes_are_bound_to_the_node_of_their_gpu(tmp_path: Path) -> None:
    resources = Resources(cpu_cores=2, gpu_count=1, one_numa_node=True)
    chosen = choose(resources, ContainerOptions(), TWO_SOCKETS, (), {})
    assert (chosen.gpus, chosen.node, chosen.cores) == (["nvidia.com/gpu=0"], "1", "4-5")
    later = choose(resources, ContainerOptions(), TWO_SOCKETS, (), {"nvidia.com/gpu=0": JobId("other")})
    assert (later.gpus, later.node, later.cores) == (["nvidia.com/gpu=1"], "0", "0-3")
    engine, job = LocalEngine(tmp_path, TWO_SOCKETS), Job(name="x", command=("x",), resources=resources)
    assert engine._order(job, LocalOptions(), ["nvidia.com/gpu=0"])["cores"] == [4, 5]


def test_a_device_s_node_is_read_by_its_address(tmp_path: Path) -> None:
    for address, text in (("0000:1b:00.0", "1\n"), ("0001:3b:00.0", "-1\n")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(text)
    found = [read_device_node(a, tmp_path) for a in ("00000000:1B:00.0", "0000:1b:00.0", "00000001:3B:00.0", "", None)]
    assert found == [1, 1, None, None, None]


def test_programs_that_are_none_are_refused(tmp_path: Path, script: Path) -> None:
    (tmp_path / "bad.py").write_text("def (")
    for program, error in (
        (tmp_path / "none.py", NotFound),
        (tmp_path, UsageError),
        (tmp_path / "bad.py", InvalidFile),
    ):
        with pytest.raises(error):
            job_of(Hardware(), program)
    with pytest.raises(UsageError, match="not in the folder"):
        job_of(Hardware(), tmp_path / "bad.py", folder=script.parent)
    with pytest.raises(NotFound, match=r"requirements\.txt"):
        job_of(Hardware(), script, requirements=tmp_path / "requirements.txt")


# -- variables of containers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["HOME", "PATH", "XDG_RUNTIME_DIR", "DOCKER_CONTEXT", "CONTAINER_HOST", "STORAGE_DRIVER", "https_proxy"]
)
def test_a_client_s_own_settings_stay_as_they_are(name: str) -> None:
    job = Job(name="x", command=("x",), environment={name: "value", "TOKEN": "secret"})
    assert (dict(named(job)), lines(job)) == ({"TOKEN": "secret"}, f"{name}=value\n")
    assert not any("value" in word or "secret" in word for word in environment_arguments(job))


def test_home_is_in_the_container_and_not_the_client_s() -> None:
    job = Job(name="x", command=("x",))
    assert (list(environment_arguments(job)), dict(named(job)), lines(job)) == (["--env=HOME=/tmp"], {}, "")


# -- states and errors of containers --------------------------------------------------------------------------------------


def ended(code: int, **more: object) -> dict[str, Any]:
    state = {"Status": "exited", "ExitCode": code, "StartedAt": "2026-01-01T00:00:00.123456789Z", **more}
    return {"Id": "c0ffee", "State": state, "HostConfig": {"Memory": 64 << 20}}


KERNEL = "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/libpod_parent/libpod-c0ffee,task=python\n"


@pytest.mark.parametrize(
    ("document", "log", "words"),
    [
        (ended(137, OOMKilled=True), "", "killed for memory (exit 137): its limit is 64.0 MiB"),
        (ended(137, OOMKilled=False), KERNEL, "killed for memory (exit 137): its limit is 64.0 MiB"),
        (ended(137, OOMKilled=False), KERNEL.replace("c0ffee", "other"), "killed (exit 137), most likely for memory"),
        (ended(1), KERNEL, "one of its processes was killed for memory (exit 1)"),
        (ended(1), "", ""),
    ],
)
def test_a_kill_for_memory_is_told(document: dict[str, Any], log: str, words: str) -> None:
    status = container_status(document, False, lambda: log)
    assert status.state is JobState.FAILED
    assert status.reason.startswith(words)
    assert status.started_at == pytest.approx(1767225600.123456789)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("created", JobState.PENDING),
        ("running", JobState.RUNNING),
        ("paused", JobState.RUNNING),
        ("new", JobState.UNKNOWN),
    ],
)
def test_words_of_the_clients_are_mapped(word: str, state: JobState) -> None:
    assert container_status({"Id": "x", "State": {"Status": word}}, False).state is state


def test_a_container_that_was_never_started_can_be_cancelled() -> None:
    assert container_status({"Id": "x", "State": {"Status": "created"}}, True).state is JobState.CANCELLED


def test_a_cancelled_container_is_cancelled_whatever_its_exit_code() -> None:
    assert container_status(ended(0), True).state is JobState.CANCELLED
    assert container_status(ended(137), True).reason == ""


@pytest.mark.parametrize(
    ("dialect", "said", "error"),
    [
        (DOCKER, "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", Unreachable),
        (DOCKER, "Error response from daemon: No such image: x", NotFound),
        (
            DOCKER,
            "Error response from daemon: driver failed: Bind for 127.0.0.1:80 failed: port is already allocated",
            UsageError,
        ),
        (
            DOCKER,
            'Error response from daemon: Conflict. The container name "/x" is already in use by container',
            UsageError,
        ),
        (DOCKER, "Error response from daemon: CDI device injection failed: unresolvable CDI devices a/b=0", DoesNotFit),
        (PODMAN, "Error: x:1: image not known", NotFound),
        (PODMAN, 'time="x" level=warning msg="y"\nError: something else', TonnageError),
    ],
)
def test_errors_of_the_clients_are_ours(dialect: Any, said: str, error: type[TonnageError]) -> None:
    found = Client(dialect).error(said)
    assert type(found) is error
    assert "level=warning" not in found.message
