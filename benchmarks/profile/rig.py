"""One program at the same time alone, under `tonnage profile` and once more alone, in turns so that all see the same machine.

Times of a shared machine drift by more than what is to be measured. So neither runs while the other does: each makes a block
of steps and waits, and a block is compared with those beside it. What the second that is alone differs by is noise.
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
Turn = tuple[list[Row], list[Row], list[Row]]
WARM = 20
STEPS = 10  # under the profiler
BLOCKS = 24  # before the window, and as many behind it
BLOCK_SECONDS = 0.12
LONGEST_SECONDS = 5.0  # for the blocks of one program on one side of the window
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
    """A turn is a block of the program alone, one under the profiler, and one alone in another process, next to each other in time."""

    before: list[Turn]
    window: list[Row]  # the very steps that the indicators are of, by hand
    after: list[Turn]
    held: list[Row]
    report: ProfileReport


class Rig:
    def __init__(self, path: Path, arguments: list[str], limit: float, trace: Path | None = None) -> None:
        self._command = (str(path), *arguments, "--steps", MANY)
        self._limit, self._trace = limit, trace
        self._temporary = tempfile.TemporaryDirectory()
        folder = Path(self._temporary.name)
        self._alone, self._profiled, self._again = (Player(folder, name) for name in ("alone", "profiled", "again"))
        self._output = (folder / "alone.txt").open("w+")
        clock = str(HERE / "hand_clock.py")
        self._processes = [
            subprocess.Popen(
                [sys.executable, clock, str(player.socket), *self._command],
                stdout=self._output,
                stderr=subprocess.STDOUT,
            )
            for player in (self._alone, self._again)
        ]
        self._program = parse_program(clock, (str(self._profiled.socket), *self._command))
        self._job = Job(self._program, WindowOptions(), listens=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        for player in (self._alone, self._profiled, self._again):
            player.close()
        self._job.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._output.close()
        self._temporary.cleanup()

    def play(self) -> Played:
        self._arrive()
        step = median(row["step_seconds"] for row in self._alone.play(WARM)[WARM // 2 :])
        block = max(round(BLOCK_SECONDS / step), _SETTLED + 3)
        blocks = max(4, min(BLOCKS, round(LONGEST_SECONDS / (block * step))))
        self._profiled.play(WARM)
        self._again.play(WARM)
        before = self._turns(block, blocks)
        window = self._play_window(step)
        after = self._turns(block, blocks)
        held = self._alone.play(2 * block, held=True)[_SETTLED:]
        report = report_of_run(self._program, self._job.window, self._job.samples)
        # Behind the first step the window opens, and the next does not count; the clock stops inside the last one.
        return Played(before, window[2 : 1 + len(report.clocked)], after, held, report)

    def _arrive(self) -> None:
        self._profiled.arrive(self._limit)
        try:
            self._alone.arrive(self._limit)
            self._again.arrive(self._limit)
        except (TimeoutError, RuntimeError):
            self._output.seek(0)
            raise RuntimeError(f"failed by itself: {self._output.read()[-1500:]}") from None

    def _turns(self, block: int, count: int) -> list[Turn]:
        def play(player: Player) -> list[Row]:
            return player.play(block)[_SETTLED:]

        return [(play(self._alone), play(self._profiled), play(self._again)) for _ in range(count)]

    def _play_window(self, step: float) -> list[Row]:
        self._job.order(WindowOptions(warmup=1, steps=STEPS))
        time.sleep(0.5)  # until the order has arrived
        clocked = max(STEPS + 1, round(1.5 / step))  # steps by the clock fill a second
        rows = self._profiled.play(1 + clocked + 1 + STEPS + 1)
        self._job.wait_for_window(self._limit, lambda text: None)
        if self._trace is not None:
            copy_trace(self._job.window.trace, self._trace)
        return rows
