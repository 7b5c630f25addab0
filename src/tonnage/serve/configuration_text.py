"""Writes a configuration as config.pbtxt, with only what differs from the defaults."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.serve.configuration import ModelConfiguration, QueuePolicy
from tonnage.serve.configuration_json import configuration_json, policy_json
from tonnage.serve.repository import CONFIGURATIONS

# Fields that every configuration has and that say nothing unless they are set; and those that only clients look at.
_LEFT_OUT = {"platform", "optimization", "cc_model_filenames", "metric_tags", "model_warmup", "default_model_filename"}
_WORDS = {"data_type", "kind", "format", "timeout_action"}
_MAPS = {"parameters", "priority_queue_policy"}
_DEFAULTS: dict[str, Any] = {
    "version_policy": {"latest": {"num_versions": 1}},
    "kind": "KIND_AUTO",
    "format": "FORMAT_NONE",
    "default_queue_policy": policy_json(QueuePolicy()),
}


def configuration_text(configuration: ModelConfiguration) -> str:
    document = {key: value for key, value in configuration_json(configuration).items() if key not in _LEFT_OUT}
    if configuration.file_name:
        document["default_model_filename"] = configuration.file_name
    for group, told in zip(configuration.groups, document["instance_group"], strict=True):
        told["name"] = group.name  # without those that only clients are told
    return "\n".join(_lines(document, 0)) + "\n"


def write_configuration(configuration: ModelConfiguration, folder: Path) -> Path:
    """Into the folder of the model, in one step. What was there is kept under another name beside it."""
    path, new = folder / CONFIGURATIONS[0], folder / f".{CONFIGURATIONS[0]}.new"
    new.write_text(configuration_text(configuration))
    for old in (folder / name for name in CONFIGURATIONS):
        if old.exists():
            os.link(old, _free(old))
    new.replace(path)
    for other in CONFIGURATIONS[1:]:
        (folder / other).unlink(missing_ok=True)
    return path


def _free(old: Path) -> Path:
    """`config.pbtxt.before`, or with a number where there is one from an earlier time."""
    kept, number = old.with_name(f"{old.name}.before"), 1
    while kept.exists():
        number += 1
        kept = old.with_name(f"{old.name}.before-{number}")
    return kept


def _lines(document: dict[str, Any], depth: int) -> Iterator[str]:
    space = "  " * depth
    for name, value in document.items():
        if _says_nothing(name, value):
            continue
        for each in _repeated(name, value):
            if isinstance(each, dict):
                yield f"{space}{name} {{"
                yield from _lines(each, depth + 1)
                yield f"{space}}}"
            else:
                yield f"{space}{name}: {_value(name, each)}"


def _repeated(name: str, value: Any) -> list[Any]:
    """A field stands once for each entry of a map or of a list of blocks."""
    if name in _MAPS:
        return [{"key": int(key) if key.isdigit() else key, "value": each} for key, each in value.items()]
    return value if isinstance(value, list) and isinstance(value[0], dict) else [value]


def _says_nothing(name: str, value: Any) -> bool:
    """Some blocks mean something although they are empty: that there are batches, that all versions are served."""
    if name in ("all", "dynamic_batching", "key"):
        return False
    return value == _DEFAULTS.get(name) or value in (0, "", False) or value == [] or value == {}


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(name, each) for each in value)}]"
    return str(value) if isinstance(value, int | float) or name in _WORDS else json.dumps(value, ensure_ascii=False)
