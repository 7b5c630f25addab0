"""Follows a running program through a window of steps: some to warm up, some by the clock, some under the profiler."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tonnage.profile.channel import Channel, Message
from tonnage.profile.module_ranges import ModuleRanges, is_compiled
from tonnage.profile.step_clock import LoaderWatch, StepClock
from tonnage.profile.trace_names import STEP_PREFIX
from tonnage.profile.turns import Turns
from tonnage.profile.usage import peak_rss_bytes, usage

# Power needs a while to be read: the driver's counter moves every 20 to 100 ms. Short steps are clocked for longer.
_POWER_SECONDS = 1.0
_MOST_CLOCKED = 50  # times as many steps as were asked for
_TELL_SECONDS = 0.5


class Tracker:
    """What is done at the end of each turn depends on `state`: waiting, warming, clocking, tracing, done."""

    def __init__(self, channel: Channel, request: Message) -> None:
        self._channel = channel
        self._request: Message = request
        self._order: Message | None = request if request["armed"] else None
        self._turns = Turns(self._end_turn)
        self._pid = os.getpid()
        self.state = "waiting"
        self.turns = 0
        self._left = 0
        self._told = 0.0
        self._clock: StepClock | None = None
        self._usage: dict[str, float] = {}
        self._rows: list[dict[str, float]] = []
        self._profiler: Any = None
        self._mark: Any = None
        self._ranges: ModuleRanges | None = None
        self._traced = 0

    @property
    def wants_more(self) -> bool:
        return self.state != "done" or self._request["keep_running"]

    def install(self) -> None:
        self._turns.install()
        threading.Thread(target=self._listen, name="tonnage", daemon=True).start()
        self._channel.send({"event": "torch", "at": time.monotonic()})

    def _listen(self) -> None:
        while True:
            try:
                order = self._channel.receive()
            except EOFError:
                return
            if order is not None and order.get("order") == "stop":
                _leave()
            self._order = order

    # -- turns --------------------------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork, such as a loader's worker
        self.turns += 1
        if self.state == "waiting":
            self._begin_window()
        elif self.state == "warming":
            self._left -= 1
            if self._left <= 0:
                self._begin_clock()
        elif self.state == "clocking":
            self._follow_clock()
        elif self.state == "tracing":
            self._follow_trace()
        self._tell(self.state)

    def _tell(self, state: str) -> None:
        now = time.monotonic()
        if state != self.state or now - self._told > _TELL_SECONDS:
            self.state, self._told = state, now
            self._channel.send({"event": "state", "state": state, "turns": self.turns, "at": now})

    def _begin_window(self) -> None:
        if self._order is None:
            return
        self._request, self._order = {**self._request, **self._order}, None
        self._left = self._request["warmup"] - 1  # the turn that has just ended is the first
        self._tell("warming")
        if self._left <= 0:
            self._begin_clock()

    def _begin_clock(self) -> None:
        self._tell("clocking")
        self._usage = usage()
        self._clock = StepClock(self._turns)

    def _follow_clock(self) -> None:
        assert self._clock is not None
        self._clock.end_step()
        wanted: int = self._request["steps"]
        if self._clock.steps <= wanted:
            return
        too_short = torch.cuda.is_initialized() and time.monotonic() - self._clock.began < _POWER_SECONDS
        if too_short and self._clock.steps < _MOST_CLOCKED * wanted:
            return
        before, self._usage = self._usage, usage()
        self._rows = self._clock.finish()[1:]  # the device had run dry when the first began
        self._usage = {name: self._usage[name] - before[name] for name in before}
        self._channel.send(
            {
                "event": "clocked",
                "rows": self._rows,
                "usage": self._usage,
                "began": self._clock.began,
                "at": time.monotonic(),
            }
        )
        self._clock = None
        self._begin_trace()

    def _begin_trace(self) -> None:
        self._tell("tracing")
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities, acc_events=True)
        self._profiler.__enter__()
        self._ranges = None if is_compiled() else ModuleRanges()
        self._traced = -1  # the first step pays for what the profiler sets up, and the device starts empty
        self._open_step()

    def _open_step(self) -> None:
        # The first has no name of a step, so that nobody counts it who reads the trace.
        self._mark = record_function(f"{STEP_PREFIX}{self._traced}" if self._traced >= 0 else "the profiler starts")
        self._mark.__enter__()

    def _follow_trace(self) -> None:
        self._mark.__exit__(None, None, None)
        self._traced += 1
        if self._traced < self._request["steps"]:
            self._open_step()
        else:
            self._end_trace()

    def _end_trace(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        if self._ranges is not None:
            self._ranges.remove()
        self._profiler.__exit__(None, None, None)
        partial = Path(self._request["trace"] + ".part.json")
        self._profiler.export_chrome_trace(str(partial))
        partial.replace(self._request["trace"])
        self._profiler = None
        self._channel.send(
            {"event": "traced", "steps": self._traced, "wanted": self._request["steps"], **self._facts()}
        )
        self._close_window()

    def _close_window(self) -> None:
        if self._request["listens"]:
            self._tell("waiting")
            return
        self._tell("done")
        self._turns.remove()
        if not self._request["keep_running"] and not self._request["hold"]:
            _leave()

    def program_ended(self, *, failed: bool) -> None:
        """By itself. What was traced so far is better than nothing, unless the program failed."""
        if self.state == "tracing" and self._profiler is not None and self._traced >= 1 and not failed:
            self._mark.__exit__(None, None, None)
            self._request["keep_running"] = True  # it ends anyway, with its own exit code
            self._end_trace()
        elif self._profiler is not None:
            self._profiler.__exit__(None, None, None)  # Python must not end while it looks on
        self._channel.send({"event": "ended", "torch": True, "turns": self.turns, "state": self.state})

    def _facts(self) -> Message:
        facts: Message = {
            "torch_version": str(torch.__version__),
            "training": self._turns.training,
            "loader_workers": LoaderWatch.workers,
            "peak_rss_bytes": peak_rss_bytes(),
            "modules_named": self._ranges is not None,
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        }
        if torch.cuda.is_initialized():
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            facts |= {
                "cuda_version": torch.version.cuda or "",
                "gpu_name": properties.name,
                "gpu_memory_bytes": properties.total_memory,
                "gpu_uuid": f"GPU-{getattr(properties, 'uuid', '')}",
                "allocated_bytes": torch.cuda.max_memory_allocated(),
                "reserved_bytes": torch.cuda.max_memory_reserved(),
            }
        return facts


def _leave() -> None:
    """End here: nothing that the program does at its end, such as saving, belongs to a run that was cut short."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
