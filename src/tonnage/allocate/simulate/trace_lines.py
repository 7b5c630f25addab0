"""From the lines of a job trace to `Jobs`; a complaint is one sentence with file and line.

A line has ten fields with tabs between: type, command, directory, flag for the steps, whether data is needed, steps, GPUs,
weight, deadline, arrival in seconds. Command, directory, flags and deadline are of no use here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from tonnage.allocate.simulate.jobs import Jobs
from tonnage.allocate.speeds import SpeedTable
from tonnage.errors import DoesNotFit, InvalidFile
from tonnage.hardware.catalogue import nearest

_FIELDS = 10
_TYPE, _STEPS, _GPUS, _WEIGHT, _ARRIVAL = 0, 5, 6, 7, 9
_MOST_GPUS_DIGITS = 7
_MOST_YEARS = 30.0  # of one job alone on the GPUs that suit it: nobody means more, and each half hour of it is played
_YEAR_SECONDS = 365.0 * 86400.0
_MOST = 1e15  # of anything: steps and seconds beyond it lose their unit in floating point


class _Bad(Exception):
    """What is wrong with a line."""


def parse_trace(lines: Iterable[str], source: str, table: SpeedTable) -> Jobs:
    """The jobs in the order of their arrival; those that arrive together keep the file's."""
    reader = _Reader(table)
    for number, line in enumerate(lines, 1):
        try:
            reader.read(line)
        except _Bad as problem:
            raise InvalidFile(f"{source}:{number}: {problem}") from None
        except DoesNotFit as error:
            raise DoesNotFit(f"{source}:{number}: {error.message}", error.hint) from None
    if not reader.steps:
        raise InvalidFile(f"{source}: no job is in it", "a line has ten fields with tabs between")
    return reader.jobs()


class _Reader:
    def __init__(self, table: SpeedTable) -> None:
        self.numbers = {(each.name, str(each.gpus)): number for number, each in enumerate(table.classes)}
        self.most_steps = [_MOST_YEARS * _YEAR_SECONDS * best or _MOST for best in table.best.tolist()]
        self.classes, self.steps, self.weights, self.arrivals = array("q"), array("d"), array("d"), array("d")

    def read(self, line: str) -> None:
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) != _FIELDS:
            if not line.strip():
                return
            raise _Bad(f"{len(fields)} fields, not {_FIELDS} with tabs between")
        number = self.numbers.get((fields[_TYPE], fields[_GPUS]))
        number = self._class(fields) if number is None else number
        self.classes.append(number)
        self.steps.append(self._steps(fields, number))
        self.weights.append(_positive(fields[_WEIGHT], "the weight"))
        self.arrivals.append(_number(fields[_ARRIVAL], "the arrival"))

    def _class(self, fields: list[str]) -> int:
        """Of a job whose class is spelt in another way, or is not known."""
        name, gpus = fields[_TYPE].strip(), _count(fields[_GPUS])
        number = self.numbers.get((name, str(gpus)))
        if number is None:
            raise self._unknown(name, gpus)
        return number

    def _steps(self, fields: list[str], number: int) -> float:
        steps = _positive(fields[_STEPS], "steps")
        if steps > self.most_steps[number]:
            raise _Bad(f"{fields[_STEPS]} steps take more than {_MOST_YEARS:.0f} years on the GPUs that suit it best")
        return steps

    def _unknown(self, name: str, gpus: int) -> Exception:
        scales = sorted(int(scale) for known, scale in self.numbers if known == name)
        if scales:
            most = ", ".join(map(str, scales))
            return DoesNotFit(f"{name} has no speed on {gpus} GPUs", f"the throughputs know it on {most} GPUs")
        meant = nearest(name, {known for known, _ in self.numbers})
        return _Bad(f"{name!r} is not in the throughputs" + (f"; did you mean {meant!r}?" if meant else ""))

    def jobs(self) -> Jobs:
        arrivals = np.array(self.arrivals)
        order = np.argsort(arrivals, kind="stable")
        return Jobs(
            classes=np.array(self.classes, dtype=np.int64)[order],
            steps=np.array(self.steps)[order],
            arrival_seconds=arrivals[order],
            weights=np.array(self.weights)[order],
        )


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _Bad(f"{what} must be a number, not {text!r}") from None
    if not 0.0 <= value <= _MOST:  # nor is NaN
        raise _Bad(f"{what} must be from 0 to {_MOST:.0e}, not {text}")
    return value


def _positive(text: str, what: str) -> float:
    value = _number(text, what)
    if value == 0.0:
        raise _Bad(f"{what} must be above 0")
    return value


def _count(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > _MOST_GPUS_DIGITS or int(text) < 1:
        raise _Bad(f"GPUs must be a whole number from 1, not {text[:20]!r}")
    return int(text)
