"""Runs a script and notes how long its steps take, without a profiler: `python recorder.py SCRIPT [ARGUMENT ...]`.

This is how a program that was configured is deployed, so that predicted stands beside measured. It works in an image that
has Python and torch and nothing else, slows no step down, and puts what it saw into the program's own output as one line,
which every engine can show. If anything about it fails, the program runs on.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from statistics import fmean, pstdev
from types import ModuleType
from typing import Any

PREFIX = "tonnage-record "
# All that it needs.
MODULES = (
    "loaders.py",
    "recorder.py",
    "roots.py",
    "running.py",
    "step_clock.py",
    "turns.py",
    "usage.py",
)  # all that it needs
_WARM = 10
_LEAST_STEPS, _MOST_STEPS = 20, 500
_LEAST_SECONDS = 2.0


class Recorder:
    """Warm-up steps, then a window by the clock, then only counting."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._turns: Any = None
        self._step_clock: Any = None  # our modules, which can only be loaded after torch
        self._usage: Any = None
        self._clock: Any = None
        self._before: dict[str, float] = {}
        self._count = 0
        self._first = self._last = 0.0
        self._window: dict[str, Any] | None = None

    def begin(self) -> None:
        """torch has been loaded."""
        with suppress(Exception), _own_modules():
            from tonnage.profile import loaders, step_clock, turns, usage

            self._step_clock, self._usage = step_clock, usage
            self._turns = turns.Turns(self._end_turn)
            self._turns.install()
            if os.environ.get(loaders.ASKED) == "1":
                loaders.set_loaders()

    def _end_turn(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork, such as a loader's worker
        self._count, self._last = self._count + 1, time.monotonic()
        if self._count == 1:
            self._first = self._last
        if self._window is None:
            try:
                self._follow()
            except Exception as error:
                self._window = {"error": f"{type(error).__name__}: {error}"}

    def _follow(self) -> None:
        if self._clock is None:
            if self._count >= _WARM:
                self._begin_clock()
            return
        self._clock.end_step()
        steps, seconds = self._clock.steps, time.monotonic() - self._clock.began
        if steps > _LEAST_STEPS and (seconds >= _LEAST_SECONDS or steps > _MOST_STEPS):
            self._end_clock()
            self.say()

    def _begin_clock(self) -> None:
        self._before, self._clock = self._usage.usage(), self._step_clock.StepClock(self._turns)

    def _end_clock(self) -> None:
        rows = self._clock.finish()[1:]  # the device had run dry when the first began
        used = {name: value - self._before[name] for name, value in self._usage.usage().items()}
        self._window = {
            "steps": len(rows),
            "means": {name: fmean(row[name] for row in rows) for name in rows[0]},
            "step_deviation_seconds": pstdev(row["step_seconds"] for row in rows),
            "cpu_cores_used": used["cpu_seconds"] / used["wall_seconds"],
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "peak_host_bytes": self._usage.peak_bytes(),
            "loader_workers": self._step_clock.LoaderWatch.workers,
            "training": self._turns.training,
            **_device(),
        }
        self._clock = None

    def ended(self) -> None:
        """What was clocked so far is better than nothing."""
        if os.getpid() != self._pid or not self._count:
            return
        with suppress(Exception):
            if self._clock is not None and self._clock.steps > 1:
                self._end_clock()
        self.say()

    def say(self) -> None:
        """Once when the window is full, and once more at the end: the last line counts."""
        whole = {"steps": self._count - 1, "seconds": self._last - self._first}
        line = PREFIX + json.dumps({"window": self._window, "whole": whole})
        with suppress(OSError, ValueError):
            # On a line of its own, whatever the program has just printed.
            os.write(2, f"\n{line}\n".encode())


def _device() -> dict[str, Any]:
    torch: Any = import_module("torch")  # the program's own, whatever its version says of types
    facts: dict[str, Any] = {"torch": str(torch.__version__), "python": ".".join(map(str, sys.version_info[:3]))}
    if not torch.cuda.is_initialized():
        return facts | {"device": "cpu"}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return facts | {
        "device": "cuda",
        "gpu": properties.name,
        "gpu_memory_bytes": properties.total_memory,
        "gpu_count": int(os.environ.get("WORLD_SIZE", "1")),
        "cuda": torch.version.cuda or "",
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


@contextmanager
def _own_modules() -> Iterator[None]:
    """Our own modules are found while they are loaded; then the program finds whatever it has under their names."""
    path, theirs = list(sys.path), _forget()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    try:
        yield
    finally:
        sys.path[:] = path
        _forget()
        sys.modules.update(theirs)


def _forget() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_tonnage(name)}


def _is_tonnage(name: str) -> bool:
    return name == "tonnage" or name.startswith("tonnage.")


def main() -> None:
    with _own_modules():
        from tonnage.profile.running import TorchWatch, run_script, show_error
    recorder = Recorder()
    sys.argv = sys.argv[1:]
    sys.meta_path.insert(0, TorchWatch(recorder.begin))
    atexit.register(recorder.ended)
    try:
        run_script(sys.argv[0])
    except Exception as error:
        show_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
