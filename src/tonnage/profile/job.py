"""A user's program, running with a tracker in it: started, ordered about, listened to, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil

from tonnage.errors import CaptureError, MissingDependency, ProgramFailed, UsageError
from tonnage.hardware.probe import Nvml
from tonnage.profile.channel import Channel, Message, channel_pair
from tonnage.profile.report import ClockedStep
from tonnage.profile.sampler import Sampler
from tonnage.program.program import Program

_MARK = "TONNAGE_PROFILE"  # tells the processes that a profile started, whatever became of their parents
_ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.2
MOST_STEPS = 10_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions:
    """Which steps are looked at: after `warmup` of them, `steps` by the clock and `steps` under the profiler."""

    warmup: int = 3
    steps: int = 5

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("steps", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_STEPS:
                raise UsageError(f"{name} = {value!r} is impossible", f"choose a number from {least} to {MOST_STEPS:,}")

    @property
    def needed(self) -> int:
        """One more each time, which is left out: the clock and the profiler set themselves up in it."""
        return max(self.warmup, 1) + 2 * (self.steps + 1)


@dataclass(slots=True)
class Window:
    """What the tracker has seen."""

    trace: Path
    clocked: tuple[ClockedStep, ...] = ()
    began: float = 0.0
    ended: float = 0.0
    usage: dict[str, float] = field(default_factory=dict)
    facts: Message = field(default_factory=dict)
    is_complete: bool = False


class Job:
    """A running program. `listens` is whether windows are ordered later, by `order`."""

    def __init__(
        self, program: Program, options: WindowOptions, *, keep_running: bool = False, hold: bool = False,
        listens: bool = False, nvml: Nvml | None = None,
    ) -> None:  # fmt: skip
        _check(program)
        self.program, self.options = program, options
        self._folder = tempfile.TemporaryDirectory(prefix="tonnage-profile-")
        self.window = Window(self.folder / "trace.json")
        self.state, self.turns, self.ended = "starting", 0, False
        self.loads_torch = False
        self._request: Message = {
            "kind": program.kind, "target": program.target, "function": program.function,
            "arguments": list(program.arguments), "warmup": options.warmup, "steps": options.steps,
            "trace": str(self.window.trace), "armed": not listens, "listens": listens, "hold": hold,
            "keep_running": keep_running or listens, "dies_with_parent": True,
        }  # fmt: skip
        self._channel, self._process = self._start()
        self._sampler = Sampler(self._process.pid, nvml)
        self.samples = self._sampler.samples

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> tuple[Channel, subprocess.Popen[bytes]]:
        request = self.folder / "request.json"
        request.write_text(json.dumps(self._request))
        ours, theirs = channel_pair()
        environment = {"TEARDOWN_CUPTI": "1", **os.environ, _MARK: str(request)}
        with theirs:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("child.py")), str(theirs.fileno()), str(request)],
                stdin=subprocess.DEVNULL, stdout=2, pass_fds=[theirs.fileno()], env=environment,
                start_new_session=True,
            )  # fmt: skip
        return ours, process

    # -- talking ------------------------------------------------------------------------------------------------------

    def order(self, options: WindowOptions) -> None:
        """Look at a window of steps that begins now."""
        self.options = options
        self.window = Window(self.window.trace)
        self._channel.send({"order": "window", "warmup": options.warmup, "steps": options.steps})

    def let_go(self) -> None:
        """End a program that was held for more than its window."""
        self._channel.send({"order": "stop"})

    def listen(self, timeout_seconds: float = _POLL_SECONDS) -> bool:
        """Take in what the tracker says; False when the program has ended and said everything."""
        try:
            message = self._channel.receive(timeout_seconds)
        except EOFError:
            return False
        if message is None:
            return self._process.poll() is None
        self._note(message)
        return True

    def _note(self, message: Message) -> None:
        kind = message["event"]
        self.loads_torch = self.loads_torch or kind == "torch" or bool(message.get("torch"))
        if kind in ("state", "ended"):
            self.turns = message["turns"]
            self.state = message.get("state", self.state)
            self.ended = kind == "ended"
        elif kind == "clocked":
            self.window.clocked = tuple(ClockedStep(**row) for row in message["rows"])
            self.window.usage, self.window.began, self.window.ended = message["usage"], message["began"], message["at"]
        elif kind == "traced":
            self.window.facts, self.window.is_complete = message, True

    def wait_for_window(self, timeout_seconds: float, say: Say) -> Window:
        """Raises `ProgramFailed` or `CaptureError` if the program ends before, or time is up."""
        deadline = time.monotonic() + timeout_seconds
        while not self.window.is_complete:
            if not self.listen():
                raise self._ended_too_early()
            say(self.describe())
            if time.monotonic() > deadline and not self.window.is_complete:
                raise CaptureError(
                    f"the window was not reached within {timeout_seconds:.0f} s: {self.describe()}",
                    "give it more time with --timeout, or look at fewer steps with --warmup and --steps",
                )
        return self.window

    def describe(self) -> str:
        if self.state == "starting":
            return "the program has loaded torch" if self.loads_torch else "the program has not loaded torch yet"
        words = {"waiting": "no window asked for", "warming": "warming up", "clocking": "steps by the clock",
                 "tracing": "steps under the profiler", "done": "the window is seen"}  # fmt: skip
        return f"{self.turns} steps seen, {words.get(self.state, self.state)}"

    # -- ending -------------------------------------------------------------------------------------------------------

    def wait(self) -> int:
        """The program's own exit code, when it has ended; as a shell counts it, if a signal ended it."""
        while self.listen():
            pass
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """For the program and all that it started, as a terminal does it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _ended_too_early(self) -> CaptureError | ProgramFailed:
        code, name = self.wait(), self.program.target
        if code:
            return _failure(name, code)
        if not self.loads_torch:
            return CaptureError(f"{name} ended without loading torch", "only PyTorch programs have steps to profile")
        if not self.turns:
            return CaptureError(
                f"{name} ended without a step: no optimizer stepped and no module was called in a loop",
                "a step is one optimizer.step(), or one call of a module without gradients",
            )
        return CaptureError(
            f"{name} ended after {self.turns} steps; the window needs {self.options.needed}",
            "look at fewer with --warmup 1 --steps 1, or let the program make more",
        )

    def close(self) -> None:
        """End the program and everything that it started, and remove what was written for it."""
        self._sampler.close()
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._channel.close()
        mark, end = self._request["trace"].replace("trace.json", "request.json"), time.monotonic() + _ENDING_SECONDS
        while (left := list(_marked(mark))) and time.monotonic() < end:
            for other in left:
                with contextlib.suppress(psutil.Error):
                    other.kill()
            psutil.wait_procs(left, timeout=0.2)
        self._folder.cleanup()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def _check(program: Program) -> None:
    if program.kind not in ("script", "function"):
        raise UsageError(f"{program.target} is no program that runs by itself", "name a script or module:function")
    if find_spec("torch") is None:
        raise MissingDependency(
            "profiling a PyTorch program needs torch, which is not installed here",
            "pip install torch, or read a trace that was made elsewhere",
        )


def _failure(name: str, code: int) -> ProgramFailed:
    if code == 128 + signal.SIGKILL:
        return ProgramFailed(f"{name} was killed (signal 9), most likely for memory", exit_code=code)
    if code > 128:
        return ProgramFailed(f"{name} was ended by signal {code - 128}", exit_code=code)
    return ProgramFailed(f"{name} failed by itself with exit code {code}; what it said is above", exit_code=code)


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                yield process
