"""From label.json to a deployment that may begin: the only way in for engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tonnage.configure import label_json
from tonnage.configure.label import MOST_BYTES, Label, SignedLabel
from tonnage.configure.signing import KnownServer, verify
from tonnage.errors import NotFound, UsageError
from tonnage.program.digest import program_digest
from tonnage.program.program import Program
from tonnage.service.known_servers import known_servers
from tonnage.service.label_program import read_program
from tonnage.service.seen_labels import SeenLabels

Clock = Callable[[], float]


def read_label(path: str | Path) -> SignedLabel:
    """Nothing is verified yet."""
    try:
        with open(path, "rb") as file:
            return label_json.load(file.read(MOST_BYTES + 1))
    except FileNotFoundError:
        raise NotFound(f"there is no label {path}", "tonnage configure writes one") from None
    except OSError as error:
        raise UsageError(f"the label {path} cannot be read: {error.strerror}") from None


def load_verified(
    path: str | Path,
    program: Program | None = None,
    *,
    servers: Mapping[str, KnownServer] | None = None,
    seen: SeenLabels | None = None,
    clock: Clock = time.time,
) -> Label:
    """The label, if it names a known server, its signature holds, it is neither expired nor used, and the program is the
    one it was made for; else raises `Refused`. It is not used up: for that, see `claimed`. Without a program, the one
    that is named beside the label counts."""
    return verify(
        read_label(path),
        known_servers() if servers is None else servers,
        now=clock(),
        seen_ids=(seen or SeenLabels()).ids(),
        program_digest=program_digest(program or read_program(Path(path))),
    )


@contextmanager
def claimed(
    path: str | Path,
    program: Program | None = None,
    *,
    servers: Mapping[str, KnownServer] | None = None,
    seen: SeenLabels | None = None,
    clock: Clock = time.time,
) -> Iterator[Label]:
    """A verified label for one deployment. If the body fails, nothing was deployed and the label may be used again."""
    store = seen or SeenLabels()
    label = load_verified(path, program, servers=servers, seen=store, clock=clock)
    store.claim(label, clock())
    try:
        yield label
    except BaseException:
        store.release(label)
        raise


@contextmanager
def looked_at(path: str | Path, program: Program | None = None) -> Iterator[Label]:
    """A verified label that is not used up, as for a dry run."""
    yield load_verified(path, program)
