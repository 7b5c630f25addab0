"""How a job's variables get into its container: never on a command line, which everybody can read, and never as settings
of the client itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tonnage.engines.base import Job
from tonnage.errors import UsageError

# By these the clients, and the libraries they are made of, find their own files, servers and storage.
_CLIENTS_OWN = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|LANG|LANGUAGE|TZ|TERM|NOTIFY_SOCKET|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)"
    r"|_?(LD|LC|DOCKER|BUILD\w*|PODMAN|CONTAINERS?|STORAGE|REGISTRY|XDG|DBUS|LISTEN|SSH|SSL|OTEL)_\w+|\w+_(PROXY|proxy)"
)
# What both clients read as one line NAME=VALUE and leave as it is; there is no way to write a line break.
_ONE_LINE = re.compile(r"[^\r\n\ud800-\udfff]*")
_FILE = "/dev/stdin"  # a pipe: no file on the disk, whose removal could fail


def environment_arguments(job: Job) -> Iterator[str]:
    """Names whose values come with `named`, and a file for `lines`. Home is where something can be written: many libraries
    keep a cache there."""
    if "HOME" not in job.environment:
        yield "--env=HOME=/tmp"
    yield from (f"--env={name}" for name in sorted(named(job)))
    if lines(job):
        yield f"--env-file={_FILE}"


def named(job: Job) -> Mapping[str, str]:
    """What is added to the client's environment, which it hands on by name."""
    return {name: value for name, value in job.environment.items() if not _CLIENTS_OWN.fullmatch(name)}


def lines(job: Job) -> str:
    """What is written to the client's input: variables that would change what the client does."""
    return "".join(f"{name}={value}\n" for name, value in sorted(_of_client(job).items()))


def check_lines(job: Job) -> None:
    for name, value in _of_client(job).items():
        if not _ONE_LINE.fullmatch(value):
            raise UsageError(
                f"{name} cannot have a value of several lines: container clients would take it for themselves",
                "put it into a file that is mounted, or set it in the program",
            )


def note(job: Job) -> str:
    """For people who read the command."""
    names = ", ".join(sorted(_of_client(job)))
    return f"# {_FILE}: a line NAME=VALUE for each of {names}\n" if names else ""


def _of_client(job: Job) -> Mapping[str, str]:
    return {name: value for name, value in job.environment.items() if _CLIENTS_OWN.fullmatch(name)}
