"""Starts an instance: what every process of that kind does before it knows its model.

    python -m tonnage.serve.start_instance DESCRIPTOR PID PACKAGE

It is killed when the server, whose process id it is given, dies in the middle of a run, so that none outlives its
server. Packages are large: while they are imported, other instances that work already go before.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from importlib import import_module

_PR_SET_PDEATHSIG = 1  # of Linux' prctl
_NICE = 10


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when it is over
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descriptor, server, package = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    _die_with(server)
    importing = threading.Thread(target=_import, args=("tonnage.serve.instance", package))
    importing.start()
    importing.join()
    from tonnage.serve.instance import serve

    serve(descriptor)


def _die_with(server: int) -> None:
    """Where the system can: also a run that does not end is over when the server is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it died before
        sys.exit(1)


def _import(*names: str) -> None:
    """In a thread of its own: Linux makes single threads nice, and nobody may make one less nice again. What is missing
    is told when the model is loaded."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    for name in names:
        with suppress(ImportError):
            import_module(name)


if __name__ == "__main__":
    main()
