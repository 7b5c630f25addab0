"""The measurements that come with the package, of one H200 on 2026-11-15.

Rows of the campaign `default` are from `tonnage bench run`; those of `h200-2026-11-15` are more layers, drawn at random and
measured with the same function by a script, whose time of day was not kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tonnage.store.database import Database, open_database
from tonnage.store.exchange import import_rows

NAME = "shipped"  # what `tonnage bench import` calls them
GPUS = ("H200",)
ROWS = Path(__file__).parent / "measured" / "h200.csv.gz"


@contextmanager
def shipped_database() -> Iterator[Database]:
    """A database with nothing else in it, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder, open_database(Path(folder) / "shipped.db") as database:
        import_rows(database, ROWS)
        yield database
