"""A tasks file that may grow while its tasks run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from tonnage.allocate.tasks_file import names_of, read_tasks
from tonnage.allocate.tasks_models import TasksFile
from tonnage.errors import TonnageError

_Stamp = tuple[int, int, int] | None


@dataclass(slots=True)
class LiveTasks:
    """The file at `path`, which is read for the first time now."""

    path: Path
    say: Callable[[str], None] = lambda text: None
    _read: _Stamp = field(init=False)
    _seen: _Stamp = field(init=False)

    def __post_init__(self) -> None:
        self._read = self._seen = _stamp(self.path)

    @property
    def has_changed(self) -> bool:
        """Since it was read."""
        return _stamp(self.path) != self._read

    def look(self) -> TasksFile | None:
        """What it says, if it has changed since and can be read. A broken one is told of once."""
        before, self._seen = self._seen, _stamp(self.path)
        if self._seen == self._read or self._seen != before:  # the second: somebody may be writing it
            return None
        self._read = self._seen
        try:
            return read_tasks(self.path)
        except TonnageError as error:
            self.say(f"{error.message}: the tasks that are known go on")
            return None


def added(file: TasksFile, known: Collection[str]) -> TasksFile | None:
    """The sections with tasks that are not known yet; None where there are none."""
    sections = [section for section in file.tasks if not set(names_of(section)) <= set(known)]
    return file.model_copy(update={"tasks": sections}) if sections else None


def joined(file: TasksFile, more: TasksFile) -> TasksFile:
    """Both; of a name that both have, the second tells."""
    return more.model_copy(update={"tasks": [*file.tasks, *more.tasks]})


def _stamp(path: Path) -> _Stamp:
    """Another for another content; None where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
