"""Real containers: built and run by Podman, and by Docker's client where both are there; limits are read back inside."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from contract import PROGRAMS, EngineContract, is_over, wait_for
from podman_rig import FAKE_GPUS
from rootfs import IMAGE

from tonnage.engines.base import Engine, Job, JobId, JobState, Mount, Resources, Source
from tonnage.engines.bundle import digest_of
from tonnage.engines.container_arguments import ContainerOptions
from tonnage.engines.container_client import Client
from tonnage.engines.containers import ContainerEngine, DockerEngine, PodmanEngine
from tonnage.engines.jobs import DIGEST_LABEL, Hardware, Surroundings, job_of
from tonnage.engines.names import fresh_name
from tonnage.engines.ports import free_port
from tonnage.errors import DoesNotFit, NotFound, TonnageError, Unreachable, UsageError
from tonnage.profile.recorded import find_record, without_records

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("image")


def python(program: str, **more: object) -> Job:
    files = {"main.py": program.encode()}
    job = Job(
        name=fresh_name("test"), image=IMAGE, command=("python3", "main.py"), workdir="/app",
        source=Source(files=files, digest=digest_of(files)), resources=Resources(memory_bytes=128 * MIB, pids=64),
    )  # fmt: skip
    return replace(job, **more)


@pytest.fixture
def podman_engine() -> PodmanEngine:
    return PodmanEngine()


@pytest.fixture
def run(podman_engine: PodmanEngine) -> Iterator[Callable[..., JobId]]:
    made: list[JobId] = []

    def run(job: Job, **options: object) -> JobId:
        made.append(podman_engine.submit(podman_engine.plan(job, ContainerOptions(**options))))
        return made[-1]

    yield run
    for job_id in made:
        podman_engine.cancel(job_id)
        podman_engine.remove(job_id)


def output(engine: ContainerEngine, job_id: JobId) -> list[str]:
    wait_for(engine, job_id, is_over)
    return list(engine.logs(job_id))


def containers() -> str:
    listed = ["podman", "ps", "--all", "--quiet", "--filter", "label=tonnage.name"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout


class TestPodman(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return PodmanEngine()

    def job(self, program: str) -> Job:
        return python(PROGRAMS[program])


@pytest.fixture(scope="module")
def docker_daemon(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:  # noqa: ARG001 - needed first
    if shutil.which("docker") is None:
        pytest.skip("NO DOCKER CLIENT: the engine docker is tried with manifests only")
    path = tmp_path_factory.mktemp("docker") / "podman.sock"
    with pytest.MonkeyPatch.context() as patch, open(path.with_suffix(".log"), "wb") as log:
        patch.setenv("DOCKER_HOST", f"unix://{path}")
        patch.setenv("DOCKER_BUILDKIT", "0")
        command = ["podman", "system", "service", "--time=0", f"unix://{path}"]
        service = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield
        service.terminate()
        service.wait(20)


@pytest.mark.usefixtures("docker_daemon")
class TestDocker(EngineContract):
    """Docker's own client; behind it Podman, which speaks its language."""

    @pytest.fixture
    def engine(self) -> Engine:
        return DockerEngine()

    def job(self, program: str) -> Job:
        return python(PROGRAMS[program])

    def test_a_build_that_fails_leaves_no_image(self, engine: ContainerEngine) -> None:
        build_in_vain(engine)

    def test_variables_of_the_job_are_not_the_client_s(
        self, engine: ContainerEngine, submit: Callable[..., JobId]
    ) -> None:
        assert output(engine, submit("hello", **asks_for(CLIENTS_OWN))) == list(CLIENTS_OWN.values())


# With any of these the clients would look for their server, their storage or their settings elsewhere.
CLIENTS_OWN = {
    "CONTAINERS_CONF": "/nowhere", "CONTAINERS_STORAGE_CONF": "/nowhere", "DOCKER_CONTEXT": "none", "HOME": "/tmp/x",
    "DOCKER_HOST": "tcp://nowhere:1", "PATH": "/usr/bin:/a b", "HTTPS_PROXY": "http://me:\"p#ss\"@proxy", "XDG_X": " ä=",
}  # fmt: skip


def asks_for(variables: dict[str, str]) -> dict[str, object]:
    """What a job needs to print its variables."""
    program = f"import os\nfor name in {list(variables)}: print(os.environ[name])".encode()
    return {"source": Source(files={"main.py": program}, digest=""), "environment": variables}


# -- limits, read back inside the container -------------------------------------------------------------------------------

READ_LIMITS = """
import json, os
def read(*names):
    for name in names:
        path = f"/sys/fs/cgroup/{name}"
        if os.path.exists(path): return open(path).read().split()
quota = read("cpu.max") or [*read("cpu/cpu.cfs_quota_us"), *read("cpu/cpu.cfs_period_us")]
print(json.dumps({
    "cpus": int(quota[0]) / int(quota[1]), "pids": int(read("pids.max", "pids/pids.max")[0]),
    "memory": int(read("memory.max", "memory/memory.limit_in_bytes")[0]),
    "swap": (read("memory.swap.max") or ["0"])[0], "memsw": (read("memory/memory.memsw.limit_in_bytes") or ["0"])[0],
    "cores": read("cpuset.cpus.effective", "cpuset/cpuset.cpus")[0],
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize, "user": os.getuid(),
    "status": dict(l.split(":\\t") for l in open("/proc/self/status").read().splitlines() if l[:3] in ("Cap", "NoN")),
}))
"""


def test_the_limits_are_those_of_the_job(podman_engine: PodmanEngine, run: Callable[..., JobId]) -> None:
    resources = Resources(
        cpu_cores=0.5,
        memory_bytes=96 * MIB,
        pids=77,
        shared_memory_bytes=32 * MIB,
        numa_node=podman_engine.host.nodes[0].index,
    )
    job_id = run(python(READ_LIMITS, resources=resources))
    found = json.loads(output(podman_engine, job_id)[0])
    assert (found["cpus"], found["memory"], found["pids"], found["shm"]) == (0.5, 96 * MIB, 77, 32 * MIB)
    assert found["swap"] == "0"
    assert int(found["memsw"]) in (0, 96 * MIB)
    assert found["user"] == 65534
    assert int(found["status"]["CapEff"], 16) == int(found["status"]["CapBnd"], 16) == 0
    assert found["status"]["NoNewPrivs"] == "1"


def test_only_tmp_can_be_written_to(podman_engine: PodmanEngine, run: Callable[..., JobId]) -> None:
    program = (
        "for path in ('/tmp/x', '/app/x', '/etc/x', '/x'):\n try: open(path, 'w'); print('yes')\n"
        " except OSError as error: print(error.strerror)"
    )
    assert output(podman_engine, run(python(program))) == ["yes", *["Read-only file system"] * 3]


def test_a_container_killed_for_memory_says_so(
    podman_engine: PodmanEngine, run: Callable[..., JobId], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    job_id = run(python("x = bytearray(400 << 20)", resources=Resources(memory_bytes=64 * MIB)))
    status = wait_for(podman_engine, job_id, is_over)
    assert (status.state, status.exit_code) == (JobState.FAILED, 137)
    assert "for memory" in status.reason
    assert "64.0 MiB" in status.reason
    assert list(Path().iterdir()) == []


def test_a_port_is_open_on_this_machine_alone(run: Callable[..., JobId]) -> None:
    program = (
        "import http.server\nclass Hello(http.server.BaseHTTPRequestHandler):\n def do_GET(self):\n"
        "  self.send_response(200); self.end_headers(); self.wfile.write(b'hello')\n"
        "http.server.HTTPServer(('', 8000), Hello).serve_forever()"
    )
    port = free_port()
    run(python(program, ports=((port, 8000),)))
    assert fetch(port) == b"hello"
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    assert f"00000000:{port:04X}" not in listening


def fetch(port: int) -> bytes:
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as answer:
                content: bytes = answer.read()
                return content
        except OSError:
            assert time.monotonic() < deadline, "nobody answers"
            time.sleep(0.05)


def test_a_gpu_comes_by_cdi(podman_engine: PodmanEngine, run: Callable[..., JobId], fake_gpus: str) -> None:
    program = "import os, stat; print(stat.S_ISCHR(os.stat('/dev/fake-gpu-0').st_mode), os.environ['FAKE_GPU_0'])"
    resources = Resources(memory_bytes=128 * MIB, gpu_count=1)
    assert output(podman_engine, run(python(program, resources=resources), cdi_kind=fake_gpus)) == ["True here"]


def test_a_gpu_is_not_given_to_a_second_container(
    podman_engine: PodmanEngine, run: Callable[..., JobId], fake_gpus: str
) -> None:
    resources = Resources(memory_bytes=128 * MIB, gpu_count=FAKE_GPUS)
    first = run(python(PROGRAMS["sleep"], resources=resources), cdi_kind=fake_gpus)
    assert (f"{fake_gpus}=0", first) in podman_engine.held_gpus()
    before = containers()
    with pytest.raises(DoesNotFit, match=f"this machine has {FAKE_GPUS}, none of them free") as caught:
        run(python("", resources=resources), cdi_kind=fake_gpus)
    assert caught.value.hint.startswith(f"{first} holds {fake_gpus}=0,")
    assert containers() == before
    podman_engine.cancel(first)
    run(python("", resources=resources), cdi_kind=fake_gpus)


def test_a_gpu_that_is_not_there_is_refused(podman_engine: PodmanEngine, fake_gpus: str) -> None:
    job = python("", resources=Resources(gpu_count=FAKE_GPUS + 1))
    with pytest.raises(DoesNotFit, match=f"{FAKE_GPUS + 1} GPUs are wanted, this machine has {FAKE_GPUS}"):
        podman_engine.submit(podman_engine.plan(job, ContainerOptions(cdi_kind=fake_gpus)))
    named = podman_engine.plan(python(""), ContainerOptions(cdi_kind=fake_gpus, devices="7"))
    before = containers()
    with pytest.raises(DoesNotFit, match="unresolvable"):
        podman_engine.submit(named)
    assert containers() == before


def test_folders_are_mounted(podman_engine: PodmanEngine, run: Callable[..., JobId], tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("data")
    program = "print(open('/data/data.txt').read())\ntry: open('/data/x', 'w')\nexcept OSError as e: print(e.strerror)"
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    job_id = run(python(program, mounts=(Mount(source=str(tmp_path), target="/data"),)))
    assert output(podman_engine, job_id) == ["data", "Read-only file system"]


def test_variables_are_not_on_the_command_line(podman_engine: PodmanEngine, run: Callable[..., JobId]) -> None:
    variables = {"TOKEN": "s3cr3t", "KEY": "of several\nlines", "HTTPS_PROXY": "http://me:s3cr3t@proxy"}
    job = python("", **asks_for(variables))
    assert "s3cr3t" not in podman_engine.plan(job, ContainerOptions()).text
    assert "\n".join(output(podman_engine, run(job))) == "\n".join(variables.values())


def test_variables_of_the_job_are_not_the_client_s(podman_engine: PodmanEngine, run: Callable[..., JobId]) -> None:
    assert output(podman_engine, run(python("", **asks_for(CLIENTS_OWN)))) == list(CLIENTS_OWN.values())


def test_home_is_where_something_can_be_written(podman_engine: PodmanEngine, run: Callable[..., JobId]) -> None:
    assert output(podman_engine, run(python("import os; print(os.environ['HOME'])"))) == ["/tmp"]


def test_a_recorded_program_runs_as_by_itself(
    podman_engine: PodmanEngine, run: Callable[..., JobId], tmp_path: Path
) -> None:
    """Its recorder comes with it into the image, which has Python and nothing else."""
    script = tmp_path / "serve.py"
    script.write_text("import sys\nprint(sys.argv, [n for n in sys.modules if 'tonnage' in n])\nsys.exit(5)\n")
    job = job_of(Hardware(memory_bytes=1 << 28), script, ["--port", "1"], image=IMAGE, record=True)
    job_id = run(job)
    assert output(podman_engine, job_id) == ["['serve.py', '--port', '1'] []"]
    assert podman_engine.state(job_id).exit_code == 5


def test_the_steps_of_a_recorded_program_are_in_its_output(
    podman_engine: PodmanEngine, run: Callable[..., JobId], tmp_path: Path
) -> None:
    """With the torch of this machine, since no image that has one can be fetched."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(40):\n    model(torch.ones(4, 8)).sum().backward()\n    optimizer.step()\nprint('trained')\n"
    )
    packages, libraries = str(Path(torch.__file__).parents[1]), str(Path(libstdcxx()).parent)
    surroundings = Surroundings(
        environment={"PYTHONPATH": "/packages", "LD_LIBRARY_PATH": "/libraries"}, labels={},
        mounts=(Mount(source=packages, target="/packages"), Mount(source=libraries, target="/libraries")),
    )  # fmt: skip
    job = job_of(Hardware(memory_bytes=1 << 30), script, image=IMAGE, surroundings=surroundings, record=True)
    lines = output(podman_engine, run(job))
    assert list(without_records(lines))[-1:] == ["trained"], lines
    record = find_record(lines, "train.py", job.labels[DIGEST_LABEL])
    assert record is not None
    assert (record.run_steps, record.indicators.steps) == (39, 29)


def libstdcxx() -> str:
    """Where this machine's own C++ library is."""
    found = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return next(line.split()[-1] for line in found.splitlines() if "libstdc++.so.6" in line)


def test_the_same_program_is_built_once(podman_engine: PodmanEngine, run: Callable[..., JobId]) -> None:
    program = f"print({time.time()})"
    first = run(python(program))
    made = podman_engine.client.find_image(image_of(podman_engine, first))
    second = run(python(program))
    assert output(podman_engine, first) == output(podman_engine, second)
    assert podman_engine.client.find_image(image_of(podman_engine, second)) == made


def image_of(engine: ContainerEngine, job_id: JobId) -> str:
    return str(engine.client.inspect("container", job_id)[0]["ImageName"])


# -- what goes wrong leaves nothing behind --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"image": "localhost/no-such-image:1"}, NotFound, "podman has no image localhost/no-such-image:1"),
        ({"command": ("/no-such-program",)}, NotFound, "cannot run /no-such-program: No such file"),
        ({"resources": Resources(cpu_cores=4096)}, DoesNotFit, "4096 CPU cores are wanted"),
        ({"resources": Resources(memory_bytes=1 << 50)}, DoesNotFit, "1024 TiB of memory are wanted"),
        ({"mounts": (Mount(source="/no/such/folder", target="/x"),)}, NotFound, "/no/such/folder"),
        ({"image": ""}, UsageError, "needs an image"),
        ({"image": "--privileged"}, UsageError, "is no image"),
        ({"resources": Resources(memory_bytes=1 << 16)}, UsageError, "memory limit"),
        ({"source": Source(files={}, digest="", requirements=("numpy",))}, TonnageError, "No module named pip"),
        ({"environment": {"A=B --privileged": "1"}}, UsageError, "environment variable"),
        ({"environment": {"PATH": "/bin\nTOKEN=x"}}, UsageError, "PATH cannot have a value of several lines"),
    ],
)  # fmt: skip
def test_bad_input_leaves_no_container(
    podman_engine: PodmanEngine, more: dict[str, object], error: type[Exception], words: str
) -> None:
    before = containers()
    with pytest.raises(error, match=words):
        podman_engine.submit(podman_engine.plan(python("", **more), ContainerOptions()))
    assert containers() == before


def test_a_build_that_fails_leaves_no_image(podman_engine: PodmanEngine) -> None:
    build_in_vain(podman_engine)


def build_in_vain(engine: ContainerEngine) -> None:
    before = images("/requirements.txt")
    job = python("", source=Source(files={}, digest="", requirements=(f"no-such-package-{time.time()}",)))
    with pytest.raises(TonnageError, match="pip"):
        engine.submit(engine.plan(job, ContainerOptions()))
    assert images("/requirements.txt") == before


def images(file: str) -> set[str]:
    """Those that a step put this file into; other tests build at the same time."""
    listed = set(podman("images", "--all", "--quiet", "--no-trunc").split())
    return {image for image in listed if f" in {file} " in podman("history", "--no-trunc", image)}


def podman(*arguments: str) -> str:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False).stdout


def test_steps_that_were_there_before_a_build_stay(podman_engine: PodmanEngine, tmp_path: Path) -> None:
    tag = f"localhost/{fresh_name('tonnage-test')}"
    recipe = f"FROM {IMAGE}\nCOPY data /{tag[10:]}\n"
    (tmp_path / "data").write_text("data")
    (tmp_path / "Containerfile").write_text(recipe)
    podman_engine.client.build(str(tmp_path), tag, [], one_layer=False)
    before = images(f"/{tag[10:]}")
    (tmp_path / "Containerfile").write_text(recipe + 'RUN ["python3", "-c", "1 / 0"]\n')
    with pytest.raises(TonnageError, match="ZeroDivisionError"):
        podman_engine.client.build(str(tmp_path), "localhost/none", [], one_layer=False)
    assert len(before) == 1
    assert images(f"/{tag[10:]}") == before
    podman("rmi", tag)


def test_a_taken_port_leaves_no_container(podman_engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    before, port = containers(), free_port()
    job = python("", ports=((port, 80),))
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(UsageError, match=f"port {port} is taken"):
            podman_engine.submit(podman_engine.plan(job, ContainerOptions()))
        # And if somebody was faster than our own look at it:
        monkeypatch.setattr("tonnage.engines.containers.check_ports_are_free", lambda ports: None)
        with pytest.raises(UsageError, match="address already in use"):
            podman_engine.submit(podman_engine.plan(job, ContainerOptions()))
    assert containers() == before


def test_an_interrupted_start_leaves_no_container(podman_engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = containers()
    monkeypatch.setattr(podman_engine, "_check_started", interrupt)
    with pytest.raises(KeyboardInterrupt):
        podman_engine.submit(podman_engine.plan(python(PROGRAMS["sleep"]), ContainerOptions()))
    assert containers() == before


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), Unreachable("podman create did not answer in 60 s")])
def test_a_container_whose_number_was_never_told_is_removed(
    podman_engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    call = Client.run

    def fail(client: Client, *arguments: str, **more: Any) -> str:
        said = call(client, *arguments, **more)
        if arguments[0] == "create":
            raise failure
        return said

    before = containers()
    monkeypatch.setattr(Client, "run", fail)
    with pytest.raises(type(failure)):
        podman_engine.submit(podman_engine.plan(python(""), ContainerOptions()))
    assert containers() == before


def test_a_start_that_fails_leaves_the_older_job_of_that_name(
    podman_engine: PodmanEngine, run: Callable[..., JobId]
) -> None:
    older = run(python(PROGRAMS["sleep"]))
    with pytest.raises(UsageError, match="in use"):
        run(python("", name=older))
    assert podman_engine.state(older).state is JobState.RUNNING


def test_a_container_of_somebody_else_is_not_found(podman_engine: PodmanEngine) -> None:
    name = fresh_name("foreign")
    subprocess.run(["podman", "create", "--name", name, IMAGE, "python3"], capture_output=True, check=True)
    try:
        with pytest.raises(NotFound):
            podman_engine.cancel(JobId(name))
        with pytest.raises(UsageError, match="in use"):
            podman_engine.submit(podman_engine.plan(python("", name=name), ContainerOptions()))
        assert podman_engine.client.inspect("container", name)
    finally:
        subprocess.run(["podman", "rm", "--force", name], capture_output=True, check=True)


@pytest.mark.parametrize("engine", [PodmanEngine(), DockerEngine()], ids=lambda engine: engine.name)
def test_a_client_that_is_not_installed_is_unreachable(
    engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unreachable, match=f"{engine.name} is not installed"):
        engine.submit(engine.plan(python(""), ContainerOptions()))


def test_a_daemon_that_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker client here")
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    with pytest.raises(Unreachable, match="docker does not answer"):
        DockerEngine().submit(DockerEngine().plan(python(""), ContainerOptions()))
