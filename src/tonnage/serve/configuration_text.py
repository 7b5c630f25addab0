"""Writes a configuration as config.pbtxt, with only what differs from the defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.configuration_json import configuration_json

# Fields that every configuration has and that say nothing unless they are set; and those that only clients look at.
_LEFT_OUT = {"platform", "optimization", "cc_model_filenames", "metric_tags", "model_warmup", "default_model_filename"}
_WORDS = {"data_type", "kind", "format", "timeout_action"}
_DEFAULTS: dict[str, Any] = {
    "version_policy": {"latest": {"num_versions": 1}},
    "kind": "KIND_AUTO",
    "format": "FORMAT_NONE",
}


def configuration_text(configuration: ModelConfiguration) -> str:
    document = {key: value for key, value in configuration_json(configuration).items() if key not in _LEFT_OUT}
    if configuration.file_name:
        document["default_model_filename"] = configuration.file_name
    document["parameters"] = [{"key": key, "value": value} for key, value in document["parameters"].items()]
    return "\n".join(_lines(document, 0)) + "\n"


def write_configuration(configuration: ModelConfiguration, folder: Path) -> Path:
    """Into the folder of the model. What was there is kept under another name, and returned to by renaming it back."""
    path = folder / "config.pbtxt"
    for name in ("config.pbtxt", "config.yaml", "config.yml"):
        if (folder / name).exists():
            (folder / name).replace(folder / f"{name}.before")
    path.write_text(configuration_text(configuration))
    return path


def _lines(document: dict[str, Any], depth: int) -> Iterator[str]:
    space = "  " * depth
    for name, value in document.items():
        if _says_nothing(name, value):
            continue
        for each in value if isinstance(value, list) and isinstance(value[0], dict) else [value]:
            if isinstance(each, dict):
                yield f"{space}{name} {{"
                yield from _lines(each, depth + 1)
                yield f"{space}}}"
            else:
                yield f"{space}{name}: {_value(name, each)}"


def _says_nothing(name: str, value: Any) -> bool:
    """Some blocks mean something although they are empty: that there are batches, that all versions are served."""
    if name in ("all", "dynamic_batching"):
        return False
    return value == _DEFAULTS.get(name) or value in (0, "", False) or value == [] or value == {}


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(name, each) for each in value)}]"
    return str(value) if isinstance(value, int | float) or name in _WORDS else json.dumps(value)
