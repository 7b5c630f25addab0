"""From a document of throughputs to a `SpeedTable`; complaints name file, line and field.

`{"v100": {"('ResNet-18', 1)": {"null": 4.8, "('LM', 1)": [2.5, 3.1]}}}`: by type of GPU and by class (name and
GPUs), the steps a second alone, and beside another class its own and the other's.
"""

from __future__ import annotations

import ast
import json
from typing import Any, NoReturn

import numpy as np

from tonnage.allocate.speeds import SpeedTable, TaskClass
from tonnage.errors import InvalidFile

_ALONE = "null"
_MOST_GPUS = 10**6  # of one class
_MOST_STEPS = 1e15  # a second: what is beyond loses its unit in floating point
_SHAPE = "an object: type of GPU, class, speeds"


def parse_throughputs(text: str, source: str) -> SpeedTable:
    return _Reader(text, source).table()


class _Reader:
    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self.document = self._mapping(self._load())
        names = {
            name: None for type_name in self.document for name in self._mapping(self.document[type_name], type_name)
        }
        self.classes = {name: self._class(name) for name in names}
        self.numbers = {name: number for number, name in enumerate(self.classes)}

    def table(self) -> SpeedTable:
        types, classes = tuple(self.document), tuple(self.classes.values())
        alone = np.zeros((len(classes), len(types)))
        paired = np.zeros((len(types), len(classes), len(classes)))
        for kind, type_name in enumerate(types):
            for name, speeds in self.document[type_name].items():
                alone[self.numbers[name], kind] = self._alone(type_name, name)
                for other in speeds.keys() & self.numbers.keys():
                    self._add_pair(paired[kind], type_name, name, other)
        runs = alone.T > 0
        return SpeedTable(
            types=types, classes=classes, alone=alone, paired=paired * (runs[:, :, None] & runs[:, None, :])
        )

    def _alone(self, type_name: str, name: str) -> float:
        speeds = self._mapping(self.document[type_name][name], type_name, name)
        if _ALONE not in speeds:
            self._refuse("the speed alone is missing", type_name, name)
        return self._speed(speeds[_ALONE], type_name, name, _ALONE)

    def _add_pair(self, paired: np.ndarray[Any, np.dtype[np.float64]], *path: str) -> None:
        """What a class says of itself counts; what its partner says of it, where it says nothing."""
        type_name, name, other = path
        both = self.document[type_name][name][other]
        if not isinstance(both, list) or len(both) != 2:
            self._refuse("must be two speeds: its own and the other's", *path)
        first, second = self.numbers[name], self.numbers[other]
        paired[first, second] = self._speed(both[0], *path)
        theirs = self._speed(both[1], *path)
        if name not in self.document[type_name].get(other, {}):
            paired[second, first] = theirs

    # -- small parts ------------------------------------------------------------------------------------------------------

    def _load(self) -> object:
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as error:
            raise InvalidFile(f"{self.source}:{error.lineno}: not JSON: {error.msg}") from None
        except ValueError:
            raise InvalidFile(f"{self.source}: a number has too many digits") from None
        except RecursionError:
            raise InvalidFile(f"{self.source}: too deeply nested; it must be {_SHAPE}") from None

    def _mapping(self, value: object, *path: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not value:
            self._refuse(f"must be {_SHAPE}", *path)
        return value

    def _class(self, name: str) -> TaskClass:
        try:
            words, gpus = ast.literal_eval(name)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            words, gpus = None, None
        if not isinstance(words, str) or type(gpus) is not int or not 1 <= gpus <= _MOST_GPUS:
            self._refuse("a class must look like ('name', GPUs)", name)
        return TaskClass(name=words, gpus=gpus)

    def _speed(self, value: object, *path: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST_STEPS:  # nor is NaN
            self._refuse(f"steps a second must be a number from 0 to {_MOST_STEPS:.0e}, not {value!r}", *path)
        return float(value)

    def _refuse(self, problem: str, *path: str) -> NoReturn:
        field = ", ".join(path)
        raise InvalidFile(f"{self.source}:{self._line(path)}: {field + ': ' if field else ''}{problem}")

    def _line(self, path: tuple[str, ...]) -> int:
        """Of a field: its names are looked for one after the other."""
        place = 0
        for name in path:
            found = self.text.find(json.dumps(name), place)
            place = max(place, found + len(name))
        return self.text.count("\n", 0, place) + 1
