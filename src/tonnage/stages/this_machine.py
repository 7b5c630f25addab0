"""This machine alone, as the content of a cluster file."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from itertools import groupby
from typing import Any

from tonnage.hardware.probe import Nvml
from tonnage.stages.machine import look
from tonnage.units import MIB


def this_machine(tell: Callable[[str], None], nvml: Nvml | None = None, name: str | None = None) -> dict[str, Any]:
    """GPUs that the catalogue does not have are told and left out."""
    seen = look(nvml)
    known = [gpu["name"] for gpu in seen["gpus"] if gpu["is_known"]]
    for gpu in seen["gpus"]:
        if not gpu["is_known"]:
            tell(f"the catalogue has no {gpu['name']}; left out")
    node: dict[str, Any] = {"name": _node_name(name or platform.node())}
    if known:
        node["gpus"] = [{"model": model, "count": len(list(equal))} for model, equal in groupby(known)]
    node |= {"cpu": {"cores": seen["cores"]}, "memory": f"{seen['memory_bytes'] // MIB} MiB"}
    return {"name": "here", "nodes": [node]}


def _node_name(text: str) -> str:
    """As a cluster file takes it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.partition(".")[0]).strip("-._")[:63]
    return "this-node" if name in ("", "all", "host") else name
