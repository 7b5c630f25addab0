"""Stands between Ray and one process of a job: `python ray_keeper.py GRACE_SECONDS COMMAND [ARGUMENT ...]`.

The command ends when the keeper's standard input does, however its parent on the cluster ended, and takes all that it
started with it. Travels with the job: only the standard library, and any Python that Ray runs with.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells say it


def main(grace_seconds: float, command: list[str]) -> int:
    """The keeper proper is a grandchild: Ray kills the children of a worker that ends, before the grace is over."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())  # Ray blocks SIGINT in all its processes
    keeper = os.fork()
    if keeper:
        return os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    os.setsid()
    return _keep(grace_seconds, command)


def _keep(grace_seconds: float, command: list[str]) -> int:
    """Exit codes as a shell gives them: 128 and the signal."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    threading.Thread(target=_stop_at_end_of_input, args=(child, grace_seconds), daemon=True).start()
    code = child.wait()
    _signal(child, signal.SIGKILL)  # what it left behind
    return 128 - code if code < 0 else code


def _stop_at_end_of_input(child: subprocess.Popen[bytes], grace_seconds: float) -> None:
    sys.stdin.buffer.read()
    _signal(child, signal.SIGTERM)
    try:
        child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    # Not through the interpreter's own end: its thread may still wait for input, and nothing is left to flush.
    os._exit(main(float(sys.argv[1]), sys.argv[2:]))
