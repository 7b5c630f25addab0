"""The process in which a user's program runs with a tracker beside it: `python child.py FD REQUEST`.

The program runs as if it had been started by itself: torch is loaded when the program loads it, and only then the tracker
takes its place. What the program prints, raises and returns stays its own.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    # Our modules, wherever they lie; nothing of it is left in the path, or in the environment, when the program begins.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tonnage.profile.channel import Channel, inherited_channel
from tonnage.profile.running import TorchWatch, run_script, show_error

if TYPE_CHECKING:
    from tonnage.profile.tracker import Tracker


class Child:
    """Runs the program and tells the other side how it went."""

    def __init__(self, channel: Channel, request: dict[str, Any]) -> None:
        self._channel, self._request = channel, request
        self._tracker: Tracker | None = None
        self._pid = os.getpid()
        self._failed = False

    def main(self) -> None:
        sys.meta_path.insert(0, TorchWatch(self._track))
        atexit.register(self._ended)  # also when the program ends itself with sys.exit
        sys.argv = [self._request["target"], *self._request["arguments"]]
        try:
            if self._request["kind"] == "function":
                sys.path[0] = os.getcwd()
                from tonnage.profile.function import run_function

                run_function(self._request, lambda: self._tracker is not None and self._tracker.wants_more)
            else:
                run_script(self._request["target"])
        except SystemExit as end:
            self._failed = end.code not in (None, 0)
            raise
        except (Exception, KeyboardInterrupt) as error:
            self._failed = True
            show_error(error)
            sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)

    def _track(self) -> None:
        from tonnage.profile.tracker import Tracker

        self._tracker = Tracker(self._channel, self._request)
        self._tracker.install()

    def _ended(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork
        if self._tracker is None:
            self._channel.send({"event": "ended", "torch": False, "turns": 0})
        else:
            self._tracker.program_ended(failed=self._failed)


def _die_with_parent() -> None:
    """A parent that is killed cannot end this process: on Linux the kernel does it."""
    if sys.platform == "linux":
        import ctypes
        import signal

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    number, path = sys.argv[1:]
    request = json.loads(Path(path).read_text())
    if request["dies_with_parent"]:
        _die_with_parent()
    os.environ.setdefault("TEARDOWN_CUPTI", "1")  # a profiler that stays makes later launches slower by a third
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # its log is not the program's output
    Child(inherited_channel(int(number)), request).main()


if __name__ == "__main__":
    main()
