"""Which configurations a run is about."""

import re

from blind_configurations import BLIND_CONFIGURATIONS
from configurations import CONFIGURATIONS, Configuration

SPLITS = ("all", "tune", "test", "blind")


def selected(split: str = "all", only: str = "") -> list[Configuration]:
    """Those of a part whose name contains the expression."""
    return [
        c for c in (*CONFIGURATIONS, *BLIND_CONFIGURATIONS) if split in ("all", c.split) and re.search(only, c.name)
    ]
