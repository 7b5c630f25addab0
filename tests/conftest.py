"""What tests of several rooms need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from browsing import launched
from tonnage.program.no_telemetry import keep_quiet

keep_quiet()
# Folders whose tests start servers and clusters, those that take longest first.
RIGS = ("planning", "engines", "stages", "serve", "service", "store", "cli")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with rigs wait more than they compute: their files take turns with others, and the longest come first."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    room_of = {path: path.relative_to(Path(__file__).parent).parts[0] for path in files}
    rigs = sorted((path for path in files if room_of[path] in RIGS), key=lambda path: RIGS.index(room_of[path]))
    others = [path for path in files if room_of[path] not in RIGS]
    turns = [path for pair in zip_longest(rigs, others) for path in pair if path is not None]
    items[:] = [item for path in turns for item in files[path]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real one; see `browsing.needs_browser` for tests without it."""
    with launched() as started:
        yield started
