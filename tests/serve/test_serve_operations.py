"""A real server from its start to its end, whichever way that comes."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from real_server import Rig, add, ask, count_to, free_port, infer, serving, wait_for, write_models

pytestmark = pytest.mark.slow
LONG = 400_000  # about half a second of counting
ENDLESS = 10**12


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_models(tmp_path / "models", instances=1)
    return tmp_path / "models"


@pytest.fixture
def rig(models: Path) -> Iterator[Rig]:
    with serving(models) as started:
        yield started


class Later(threading.Thread):
    """A request whose answer is looked at later."""

    def __init__(self, rig: Rig, number: int) -> None:
        super().__init__()
        self.answer: Any = None
        self._rig, self._number = rig, number
        self.start()

    def run(self) -> None:
        try:
            self.answer = infer(self._rig, "loop", count_to(self._number))
        except OSError as error:
            self.answer = error


def busy(rig: Rig) -> float:
    """Of the instances of `loop`."""
    _, text = ask(rig.addresses["metrics"])
    line = next(line for line in text.splitlines() if line.startswith('tonnage_instances_busy{model="loop"'))
    return float(line.rpartition(" ")[2])


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=10)[1]


def test_sigterm_answers_what_runs_and_ends_with_0(rig: Rig) -> None:
    instances = rig.instances
    later = Later(rig, LONG)
    wait_for(lambda: busy(rig))
    assert rig.stop() == 0
    later.join()
    assert later.answer[0] == 200
    assert later.answer[1]["outputs"][0]["data"] == [LONG]
    assert gone(instances)


def test_a_second_signal_ends_the_server_at_once(rig: Rig) -> None:
    instances = rig.instances
    later = Later(rig, ENDLESS)
    wait_for(lambda: busy(rig))
    rig.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert rig.process.poll() is None
    rig.process.send_signal(signal.SIGTERM)
    assert rig.process.wait(15) == 128 + signal.SIGTERM
    later.join()
    assert gone(instances)


def test_a_drain_that_takes_too_long_ends_with_1(models: Path) -> None:
    with serving(models, "--drain-seconds", "0.5") as rig:
        later = Later(rig, ENDLESS)
        wait_for(lambda: busy(rig))
        assert rig.stop(30) == 1
        later.join()
    assert any("not everything was answered in time" in line for line in rig.log)


def test_no_instance_outlives_a_server_that_is_killed(rig: Rig) -> None:
    instances = rig.instances
    later = Later(rig, ENDLESS)
    wait_for(lambda: busy(rig))
    rig.process.kill()
    assert gone(instances)
    later.join()


def test_sigterm_while_models_are_loaded_ends_with_0(models: Path) -> None:
    with serving(models, wait=False) as rig:
        wait_for(lambda: rig.process.poll() is not None or psutil.Process(rig.process.pid).children())
        started = psutil.Process(rig.process.pid).children(recursive=True)
        assert rig.stop(30) == 0
        assert started
        assert gone(started)


def test_probes_are_answered_while_models_are_loaded(models: Path) -> None:
    port = free_port()
    seen = set()
    with serving(models, "--http-port", str(port), wait=False) as rig:
        while not rig.is_ready.is_set():
            try:
                live, ready = (ask(f"http://127.0.0.1:{port}/v2/health/{name}")[0] for name in ("live", "ready"))
                inference = ask(f"http://127.0.0.1:{port}/v2/models/loop/infer", count_to(3))[0]
            except OSError:
                continue
            seen.add((live, ready, inference))
        assert (200, 400, 503) in seen
        assert ask(f"http://127.0.0.1:{port}/v2/health/ready")[0] == 200
        assert infer(rig, "loop", count_to(3))[0] == 200


@pytest.mark.parametrize("option", ["--http-port", "--grpc-port", "--metrics-port"])
def test_a_port_that_is_taken_is_told(models: Path, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with serving(models, option, port, wait=False) as rig:
            assert rig.process.wait(60) == 2
    assert any(f"port {port} of 127.0.0.1 cannot be used" in line for line in rig.log), rig.log


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with serving(tmp_path / "none", wait=False) as rig:
        assert rig.process.wait(60) == 4


def test_an_instance_that_is_killed_is_replaced_and_its_request_runs_again(rig: Rig) -> None:
    later = Later(rig, LONG)
    wait_for(lambda: busy(rig))
    victim = max(rig.instances, key=lambda each: each.cpu_times().user)
    victim.kill()
    later.join()
    assert later.answer[0] == 200
    assert "tonnage_instance_restarts_total" in ask(rig.addresses["metrics"])[1]
    wait_for(lambda: len(rig.instances) == 2)
    assert victim.pid not in [each.pid for each in rig.instances]


def test_a_run_without_end_is_killed_and_the_model_goes_on(tmp_path: Path) -> None:
    write_models(tmp_path / "models")
    settings = 'parameters { key: "run_timeout_seconds" value { string_value: "1" } }'
    (tmp_path / "models" / "loop" / "config.pbtxt").write_text(settings)
    with serving(tmp_path / "models") as rig:
        status, told = infer(rig, "loop", count_to(ENDLESS))
        assert status == 500
        assert "did not end within 1 s" in told["error"]
        assert infer(rig, "loop", count_to(3)) == (200, infer(rig, "loop", count_to(3))[1])
        assert infer(rig, "add", add(1.0))[0] == 200


def test_a_client_that_goes_frees_the_queue(rig: Rig) -> None:
    first = Later(rig, LONG)
    wait_for(lambda: busy(rig))
    with pytest.raises(TimeoutError):
        infer(rig, "loop", count_to(ENDLESS), seconds=0.1)
    first.join()
    assert infer(rig, "loop", count_to(3), seconds=20)[0] == 200  # behind one that would never have ended
    assert 'reason="CANCELED"} 1' in ask(rig.addresses["metrics"])[1]


def test_grpc_clients_that_go_free_the_queue_as_well(rig: Rig) -> None:
    grpc = pytest.importorskip("grpc")
    from tonnage.serve.grpc_messages import SERVICE, message

    first = Later(rig, LONG)
    wait_for(lambda: busy(rig))
    request = message("ModelInferRequest")(model_name="loop", raw_input_contents=[ENDLESS.to_bytes(8, "little")])
    request.inputs.add(name="n", datatype="INT64", shape=[1])
    with grpc.insecure_channel(rig.addresses["gRPC"]) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer", request_serializer=message("ModelInferRequest").SerializeToString
        )
        with pytest.raises(grpc.RpcError) as raised:
            call(request, timeout=0.1)
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    first.join()
    assert infer(rig, "loop", count_to(3), seconds=20)[0] == 200


def test_a_configuration_with_very_many_labels_reaches_its_instance(tmp_path: Path) -> None:
    write_models(tmp_path / "models")
    folder = tmp_path / "models" / "add"
    (folder / "labels.txt").write_text("\n".join(f"label number {number}" for number in range(40_000)))
    (folder / "config.pbtxt").write_text(
        'max_batch_size: 8 output { name: "y" data_type: TYPE_FP32 dims: 8 label_filename: "labels.txt" } '
        'input { name: "x" data_type: TYPE_FP32 dims: 8 }'
    )
    with serving(tmp_path / "models") as rig:
        body = {**add(1.0), "outputs": [{"name": "y", "parameters": {"classification": 1}}]}
        status, answer = infer(rig, "add", body)
        assert status == 200, rig.log
        assert answer["outputs"][0]["data"] == ["2.000000:0:label number 0"]


def test_instances_come_back_when_the_process_that_starts_them_is_killed(rig: Rig) -> None:
    later = Later(rig, LONG)
    wait_for(lambda: busy(rig))
    before, nurseries = rig.instances, rig.nurseries
    for nursery in nurseries:
        nursery.kill()
    later.join()
    assert later.answer[0] == 200
    assert gone([*before, *nurseries])
    wait_for(lambda: len(rig.instances) == 2)
    assert infer(rig, "add", add(1.0))[0] == 200


def test_nothing_is_left_open_after_many_deaths(rig: Rig) -> None:
    server = psutil.Process(rig.process.pid)
    open_before = 0
    for turn in range(5):
        for instance in rig.instances:
            os.kill(instance.pid, signal.SIGKILL)
            wait_for(lambda gone=instance.pid: gone not in [each.pid for each in rig.instances])
        wait_for(lambda: len(rig.instances) == 2 and infer(rig, "add", add(1.0))[0] == 200)
        infer(rig, "loop", count_to(1))
        if turn == 0:  # now every instance has its arenas
            wait_for(lambda: not connections(server))
            open_before = server.num_fds()
    wait_for(lambda: server.num_fds() <= open_before)
    assert not [each for each in server.children(recursive=True) if each.status() == psutil.STATUS_ZOMBIE]


def connections(server: psutil.Process) -> list[Any]:
    """With clients, also with those that have just gone."""
    return [each for each in server.net_connections("tcp") if each.status != psutil.CONN_LISTEN]
