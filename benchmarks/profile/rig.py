"""One program twice at the same time, alone and under `tonnage profile`, working in turns so that both see the same machine.

Times of a shared machine drift by more than what is to be measured. So neither runs while the other does: each makes a block
of steps and waits, and a block is compared with the one beside it.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from programs import HERE, MANY

from tonnage.profile.build import report_of_run
from tonnage.profile.job import Job, WindowOptions
from tonnage.profile.outputs import copy_trace
from tonnage.profile.report import ProfileReport
from tonnage.program.program import parse_program

Row = dict[str, float]
WARM = 20
STEPS = 10  # under the profiler
BLOCKS = 10  # before the window, and as many behind it
BLOCK_SECONDS = 0.25
_SETTLED = 2  # steps at the beginning of a block, in which the device fills again


class Player:
    """A program with hands on its clock; see hand_clock.py."""

    def __init__(self, folder: Path, name: str) -> None:
        self.socket = folder / name
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.socket))
        self._listening.listen(1)
        self._line: Any = None

    def arrive(self, limit: float) -> None:
        """It has made its first step."""
        self._listening.settimeout(limit)
        self._connection, _ = self._listening.accept()
        self._connection.settimeout(limit)
        self._line = self._connection.makefile("rw")
        self._answer()

    def play(self, steps: int, *, held: bool = False) -> list[Row]:
        self._line.write(json.dumps({"steps": steps, "held": held}) + "\n")
        self._line.flush()
        return self._answer()

    def _answer(self) -> list[Row]:
        answer = self._line.readline()
        if not answer:
            raise RuntimeError(f"the program has ended by itself ({self.socket.name})")
        return list(json.loads(answer))

    def close(self) -> None:
        """A program that nobody directs any more ends."""
        self._listening.close()
        if self._line is not None:
            self._line.close()
            self._connection.close()


@dataclass(frozen=True, slots=True)
class Played:
    """Pairs are blocks of the program alone and under the profiler, next to each other in time."""

    before: list[tuple[list[Row], list[Row]]]
    window: list[Row]  # the very steps that the indicators are of, by hand
    after: list[tuple[list[Row], list[Row]]]
    held: list[Row]
    report: ProfileReport


class Rig:
    def __init__(self, path: Path, arguments: list[str], limit: float, trace: Path | None = None) -> None:
        self._command = (str(path), *arguments, "--steps", MANY)
        self._limit, self._trace = limit, trace
        self._temporary = tempfile.TemporaryDirectory()
        folder = Path(self._temporary.name)
        self._alone, self._profiled = Player(folder, "alone"), Player(folder, "profiled")
        self._output = (folder / "alone.txt").open("w+")
        clock = str(HERE / "hand_clock.py")
        self._process = subprocess.Popen(
            [sys.executable, clock, str(self._alone.socket), *self._command],
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        self._program = parse_program(clock, (str(self._profiled.socket), *self._command))
        self._job = Job(self._program, WindowOptions(), listens=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._alone.close()
        self._profiled.close()
        self._job.close()
        self._process.kill()
        self._process.wait()
        self._output.close()
        self._temporary.cleanup()

    def play(self) -> Played:
        self._arrive()
        step = median(row["step_seconds"] for row in self._alone.play(WARM)[WARM // 2 :])
        block = max(round(BLOCK_SECONDS / step), 2 * _SETTLED + 4)
        self._profiled.play(WARM)
        before = self._pairs(block)
        window = self._play_window(step)
        after = self._pairs(block)
        held = self._alone.play(block, held=True)[_SETTLED:]
        report = report_of_run(self._program, self._job.window, self._job.samples)
        # Behind the first step the window opens, and the next does not count; the clock stops inside the last one.
        return Played(before, window[2 : 1 + len(report.clocked)], after, held, report)

    def _arrive(self) -> None:
        self._profiled.arrive(self._limit)
        try:
            self._alone.arrive(self._limit)
        except (TimeoutError, RuntimeError):
            self._output.seek(0)
            raise RuntimeError(f"failed by itself: {self._output.read()[-1500:]}") from None

    def _pairs(self, block: int) -> list[tuple[list[Row], list[Row]]]:
        return [(self._alone.play(block)[_SETTLED:], self._profiled.play(block)[_SETTLED:]) for _ in range(BLOCKS)]

    def _play_window(self, step: float) -> list[Row]:
        self._job.order(WindowOptions(warmup=1, steps=STEPS))
        time.sleep(0.5)  # until the order has arrived
        clocked = max(STEPS + 1, round(1.5 / step))  # steps by the clock fill a second
        rows = self._profiled.play(1 + clocked + 1 + STEPS + 1)
        self._job.wait_for_window(self._limit, lambda text: None)
        if self._trace is not None:
            copy_trace(self._job.window.trace, self._trace)
        return rows
