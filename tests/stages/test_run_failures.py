"""Workers that die, stop or do not belong: a run ends within its limits, in one sentence, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest
import torch
from networks import Perceptron
from splitting import in_a_row
from torch import nn

from tonnage.errors import Refused, TonnageError, Unreachable
from tonnage.program.exported import Exported, export_module
from tonnage.stages.hosts import LostWorkers, StageHost, Timeouts
from tonnage.stages.launchers import ProcessLauncher
from tonnage.stages.run import run_distribution
from tonnage.stages.wire import connect
from tonnage.stages.worker_names import TOKEN

LIMITS = Timeouts(start_seconds=100, setup_seconds=60, silence_seconds=3, stall_seconds=4, stop_seconds=5)
ENOUGH = 100_000  # samples: more than anybody waits for


@dataclass
class Meddler(ProcessLauncher):
    """Starts workers as ever, and does something to them when the run is under way."""

    wrong_token: bool = False
    seen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # of the processes

    def start(self, host: StageHost, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.seen[host.device] = arguments
        self.tokens.append(environment[TOKEN])
        given = {TOKEN: "guess"} if self.wrong_token else environment
        super().start(host, arguments, given)
        self.numbers[host.device] = self.process(host.device) or 0

    def is_alive(self, device: str) -> bool:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.numbers[device]).status() != psutil.STATUS_ZOMBIE
        return False


def network() -> Exported:
    return export_module(Perceptron(256), torch.randn(64, 256))


def run(launcher: Meddler, on_third: Callable[[], None], **more: Any) -> tuple[TonnageError, float]:
    """The error, and the seconds from what was done when the third sample came out."""
    done_at: list[float] = []

    def on_output(number: int, _output: Any) -> None:
        if number == 9:  # the stream is under way
            done_at.append(time.monotonic())
            on_third()

    exported = network()
    with pytest.raises(TonnageError) as caught:
        run_distribution(
            exported, in_a_row(exported.module, 3), samples=ENOUGH, launcher=launcher, timeouts=LIMITS,
            on_output=on_output, **more,
        )  # fmt: skip
    return caught.value, time.monotonic() - done_at[0]


@pytest.mark.parametrize("transport", ["sockets", "gloo"])
def test_a_killed_worker_ends_the_run_and_is_named(transport: str) -> None:
    launcher = Meddler()
    error, seconds = run(launcher, lambda: os.kill(launcher.process("d1") or 0, signal.SIGKILL), transport=transport)
    assert isinstance(error, LostWorkers)
    assert (error.exit_code, error.devices) == (5, ("d1",))
    assert "the worker of d1 died while" in error.message
    assert "SIGKILL" in error.message
    assert seconds < 10
    assert not any(launcher.is_alive(device) for device in ("d0", "d1", "d2"))


def test_a_worker_that_stands_still_is_named_with_what_it_was_doing() -> None:
    launcher = Meddler()
    error, seconds = run(launcher, lambda: os.kill(launcher.process("d2") or 0, signal.SIGSTOP))
    assert isinstance(error, LostWorkers)
    assert error.devices == ("d2",)
    assert "d2 gave no sign of life" in error.message
    assert seconds < LIMITS.silence_seconds + 10
    assert not any(launcher.is_alive(device) for device in ("d0", "d1", "d2"))


def test_an_interrupt_leaves_no_process() -> None:
    launcher, exported = Meddler(), network()

    def interrupt(number: int, _output: Any) -> None:
        if number == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_distribution(
            exported, in_a_row(exported.module, 2), samples=ENOUGH, launcher=launcher, timeouts=LIMITS,
            on_output=interrupt,
        )  # fmt: skip
    assert not any(launcher.is_alive(device) for device in ("d0", "d1"))


class Picky(nn.Module):
    """Fails for values that only a run shows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x * 2
        torch._assert_async(hidden.sum() > 0, "the sum is negative")
        return hidden + 1


def test_a_stage_that_fails_by_itself_says_why() -> None:
    exported, launcher = export_module(Picky(), torch.ones(3)), Meddler()
    names = [node.name for node in exported.module.graph.nodes if node.op == "call_function"]
    assignment = dict.fromkeys(names, "d0") | {names[-1]: "d1"}
    with pytest.raises(TonnageError, match=r"d0 failed while computing sample 1 .*the sum is negative") as caught:
        run_distribution(
            exported, assignment, samples=[torch.ones(3), -torch.ones(3)], launcher=launcher, timeouts=LIMITS
        )
    assert caught.value.exit_code == 1
    assert not any(launcher.is_alive(device) for device in ("d0", "d1"))


def test_workers_with_a_wrong_token_are_refused() -> None:
    launcher, exported, said = Meddler(wrong_token=True), network(), []
    with pytest.raises(Unreachable, match=r"ended before it said a word.*refused the token"):
        run_distribution(
            exported, in_a_row(exported.module, 2), samples=2, launcher=launcher, timeouts=LIMITS,
            progress=said.append,
        )  # fmt: skip
    assert any("turned away" in line for line in said)


def test_a_stranger_does_not_disturb_a_run() -> None:
    launcher, exported, refused = Meddler(), network(), []

    def intrude(number: int, _output: Any) -> None:
        if number == 3:
            arguments = launcher.seen["d0"]
            address = arguments[arguments.index("--controller") + 1]
            thread = threading.Thread(target=knock, args=(address,))
            thread.start()
            thread.join()

    def knock(address: str) -> None:
        try:
            connect(address, "guess", seconds=5, stall_seconds=5)
        except Refused as error:
            refused.append(error)

    report = run_distribution(
        exported, in_a_row(exported.module, 2), samples=4, launcher=launcher, timeouts=LIMITS, compare=True,
        on_output=intrude,
    )  # fmt: skip
    assert report.is_equal
    assert len(refused) == 1


def test_the_token_is_in_no_command_line() -> None:
    launcher, exported = Meddler(), network()
    run_distribution(exported, in_a_row(exported.module, 2), samples=2, launcher=launcher, timeouts=LIMITS)
    (token,) = set(launcher.tokens)
    assert len(token) == 64
    assert not any(token in word for arguments in launcher.seen.values() for word in arguments)


def test_a_worker_that_cannot_be_started_is_named() -> None:
    exported = network()
    hosts = [StageHost(device="d0"), StageHost(device="d1", prefix=("no-such-command",))]
    launcher = Meddler()
    with pytest.raises(Unreachable, match="no-such-command cannot be started for d1"):
        run_distribution(exported, in_a_row(exported.module, 2), hosts=hosts, launcher=launcher, timeouts=LIMITS)
    assert not launcher.is_alive("d0")


def test_workers_end_when_the_controller_is_gone(tmp_path: Any) -> None:
    """Killed, so that nothing of its own could clean up."""
    import subprocess
    import sys

    script = tmp_path / "controller.py"
    script.write_text(
        "import sys, torch\n"
        f"sys.path[:0] = {[str(path) for path in sys.path if path]!r}\n"
        "from test_run_failures import *\n"
        "launcher, exported = Meddler(), network()\n"
        "def tell(number, output):\n"
        "    if number == 9: print(*(launcher.process(d) for d in ('d0', 'd1')), flush=True)\n"
        "run_distribution(exported, in_a_row(exported.module, 2), samples=ENOUGH, launcher=launcher, on_output=tell)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        workers = [int(word) for word in controller.stdout.readline().split()]
        controller.kill()
    assert len(workers) == 2
    _, alive = psutil.wait_procs([psutil.Process(each) for each in workers if psutil.pid_exists(each)], timeout=10)
    assert not alive
