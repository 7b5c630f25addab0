"""The process of a nursery: imports what instances of one kind need, and forks one whenever the server asks.

    python -m tonnage.serve.start_nursery DESCRIPTOR PID PACKAGE

Packages are large. Here they are imported once, while work that runs already goes before; an instance then begins with its
model at once. A nursery is killed when the server, whose process id it is given, dies, and its instances with it, so that
none outlives its server.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module

from tonnage.program.no_telemetry import keep_quiet
from tonnage.serve.wire import ENDED, STARTED, Channel

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
    gc.freeze()  # otherwise every instance would copy what the collector looks at
    with suppress(ConnectionError):
        _Nursery(Channel(socket.socket(fileno=descriptor))).serve()


class _Nursery:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._poll = select.poll()
        self._poll.register(channel.socket, select.POLLIN)
        self._children: dict[int, int] = {}  # process ids, by the descriptors that tell of their ends

    def serve(self) -> None:
        """Until the server has closed its end."""
        own = self._channel.socket.fileno()
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != own:
                    self._bury(descriptor)
                    continue
                received = self._channel.receive()
                if received is None:
                    return
                (_, number, environment), end = received
                self._start(number, environment, end)
                os.close(end)

    def _start(self, number: int, environment: dict[str, str], end: int) -> None:
        nursery = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._channel.send((STARTED, number, 0, error.strerror or str(error)))
            return
        if pid == 0:
            self._become_instance(nursery, environment, end)
        handle = os.pidfd_open(pid)
        self._children[handle] = pid
        self._poll.register(handle, select.POLLIN)
        self._channel.send((STARTED, number, pid, ""), handle)

    def _become_instance(self, nursery: int, environment: dict[str, str], end: int) -> None:
        """Never returns: what follows in the nursery is not for this process."""
        code = 1
        try:
            _die_with(nursery)
            self._channel.close()
            for handle in self._children:
                os.close(handle)
            os.setsid()  # a Ctrl-C is for the server
            os.environ.update(environment)
            from tonnage.serve.instance import serve

            serve(end)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _bury(self, handle: int) -> None:
        pid = self._children.pop(handle)
        _, status = os.waitpid(pid, 0)
        self._poll.unregister(handle)
        self._channel.send((ENDED, pid, os.waitstatus_to_exitcode(status)))
        os.close(handle)


def _die_with(parent: int) -> None:
    """Where the system can: also a run that does not end is over when the server is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)


def _import(*names: str) -> None:
    """In a thread of its own: Linux makes single threads nice, and nobody may make one less nice again. What is missing
    is told when the model is loaded."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    keep_quiet()
    for name in names:
        with suppress(ImportError):
            import_module(name)


if __name__ == "__main__":
    main()
