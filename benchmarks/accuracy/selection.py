"""Which configurations a run is about."""

import re

from blind_configurations import BLIND_CONFIGURATIONS
from configurations import CONFIGURATIONS, Configuration

SPLITS = ("all", "tune", "test", "blind")


def selected(split: str = "all", only: str = "") -> list[Configuration]:
    """Those of a part whose name contains the expression. `all` is tune and test: blind ones must be asked for."""
    known = BLIND_CONFIGURATIONS if split == "blind" else CONFIGURATIONS
    return [c for c in known if split in ("all", c.split) and re.search(only, c.name)]
