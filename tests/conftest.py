"""What tests of several rooms need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browsing import launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real one; see `browsing.needs_browser` for tests without it."""
    with launched() as started:
        yield started
