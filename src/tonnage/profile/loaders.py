"""Gives a program's data loaders what its label counts on. Only where the user has asked for it: it changes the program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader

ASKED, WORKERS, PINNED = "TONNAGE_SET_LOADERS", "TONNAGE_LOADER_WORKERS", "TONNAGE_PINNED_MEMORY"
_WORKERS_PLACE, _PINNED_PLACE = 4, 6  # behind the dataset, for those who give them without a name


def set_loaders(environment: Mapping[str, str] = os.environ) -> None:
    """Loaders that have no workers get them, and pinned memory where nothing was said; others stay as they are."""
    workers, pinned = int(environment.get(WORKERS, "0")), environment.get(PINNED) == "1"
    original = DataLoader.__init__

    @wraps(original)
    def begin(this: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        if workers and len(args) <= _WORKERS_PLACE and not kwargs.get("num_workers"):
            kwargs["num_workers"] = workers
        if pinned and len(args) <= _PINNED_PLACE:
            kwargs.setdefault("pin_memory", True)
        original(this, dataset, *args, **kwargs)

    DataLoader.__init__ = begin
