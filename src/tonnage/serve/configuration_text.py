"""Writes a configuration into the folder of a model, with only what differs from the defaults.

What a file says already and a `ModelConfiguration` does not hold, such as settings of other servers, stays in it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tonnage.serve.configuration import (
    AUTO,
    Batching,
    InstanceGroup,
    ModelConfiguration,
    QueuePolicy,
    TensorSpec,
    VersionPolicy,
)
from tonnage.serve.configuration_file import read_source
from tonnage.serve.datatypes import BYTES
from tonnage.serve.pbtxt import Word, pbtxt_lines
from tonnage.serve.repository import CONFIGURATIONS

# What a ModelConfiguration holds: of the whole, of a tensor, of a group of instances.
_HELD = {
    "name", "platform", "backend", "max_batch_size", "input", "output", "version_policy", "instance_group",
    "dynamic_batching", "default_model_filename", "parameters",
}  # fmt: skip
_WORD = re.compile(r"[A-Z][A-Z0-9_]*")
_HELD_INSIDE = {
    "input": {"name", "data_type", "dims", "reshape", "optional"},
    "output": {"name", "data_type", "dims", "reshape", "label_filename"},
    "instance_group": {"name", "count", "kind", "gpus"},
}
# Fields that are maps, and fields whose values are words without quotation marks; YAML tells neither apart.
_MAPS = {"parameters", "priority_queue_policy", "metric_tags", "cc_model_filenames", "inputs"}
_WORDS = {"format", "priority", "kind", "data_type"}


def write_configuration(configuration: ModelConfiguration, folder: Path) -> Path:
    """As config.pbtxt, in one step. What was there is kept under another name beside it."""
    path, new = folder / CONFIGURATIONS[0], folder / f".{CONFIGURATIONS[0]}.new"
    there = [folder / name for name in CONFIGURATIONS if (folder / name).is_file()]
    before: Any = read_source(there[0]).value if there else {}
    document = _merged(configuration_document(configuration), before)
    new.write_text(pbtxt_text(document), encoding="utf-8")
    for old in there:
        shutil.copy2(old, _unused(old))
    new.replace(path)
    for old in there:
        if old != path:
            old.unlink()
    return path


def configuration_text(configuration: ModelConfiguration) -> str:
    """As config.pbtxt."""
    return pbtxt_text(configuration_document(configuration))


def pbtxt_text(document: Mapping[str, Any]) -> str:
    return "\n".join(pbtxt_lines(_with_entries(document))) + "\n"


def configuration_document(configuration: ModelConfiguration) -> dict[str, Any]:
    """Names and values as in a file."""
    said = {
        "name": configuration.name,
        "backend": configuration.backend,
        "max_batch_size": configuration.max_batch_size,
        "version_policy": {} if configuration.versions == VersionPolicy() else configuration.versions.to_json(),
        "input": [_tensor(spec) for spec in configuration.inputs],
        "output": [_tensor(spec) for spec in configuration.outputs],
        "instance_group": [] if configuration.groups == (InstanceGroup(),) else list(map(_group, configuration.groups)),
        "default_model_filename": configuration.file_name,
        "parameters": {key: {"string_value": value} for key, value in configuration.parameters.items()},
    }
    found = _said(said)
    if configuration.batching is not None:
        found["dynamic_batching"] = _batching(configuration, configuration.batching)
    return found


# -- parts ----------------------------------------------------------------------------------------------------------------


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    kind = Word("TYPE_STRING" if spec.datatype == BYTES else f"TYPE_{spec.datatype}")
    found: dict[str, Any] = {"name": spec.name, "data_type": kind, **_said({"dims": list(spec.dims)})}
    if spec.reshape is not None:
        found["reshape"] = _said({"shape": list(spec.reshape)})
    return {**found, **_said({"optional": spec.optional, "label_filename": spec.label_file})}


def _group(group: InstanceGroup) -> dict[str, Any]:
    kind = "" if group.kind == AUTO else Word(group.kind)
    return _said({"name": group.name, "count": group.count, "kind": kind, "gpus": list(group.gpus)})


def _batching(configuration: ModelConfiguration, batching: Batching) -> dict[str, Any]:
    found = _said({
        "preferred_batch_size": list(batching.preferred_sizes),
        "max_queue_delay_microseconds": round(batching.most_delay_seconds * 1e6),
        "preserve_ordering": batching.preserve_ordering,
        "priority_levels": configuration.priority_levels,
        "default_priority_level": configuration.default_priority,
        "priority_queue_policy": {level: _policy(each) for level, each in configuration.level_policies.items()},
    })  # fmt: skip
    if configuration.queue != QueuePolicy():
        found["default_queue_policy"] = _policy(configuration.queue)
    return found


def _policy(policy: QueuePolicy) -> dict[str, Any]:
    return _said({
        "timeout_action": "" if policy.timeout_action == "REJECT" else Word(policy.timeout_action),
        "default_timeout_microseconds": round(policy.timeout_seconds * 1e6),
        "allow_timeout_override": policy.allow_timeout_override,
        "max_queue_size": policy.most_requests,
    })  # fmt: skip


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    """Without those that say nothing."""
    return {name: value for name, value in fields.items() if value not in (0, "", [], {})}


# -- what was there before ------------------------------------------------------------------------------------------------


def _merged(document: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """With all that the file says and the configuration does not hold."""
    found = {**document, **{name: value for name, value in before.items() if name not in _HELD}}
    for name, held in _HELD_INSIDE.items():
        old = before.get(name, [])
        old = old if isinstance(old, list) else [old]
        found |= {name: _merged_parts(document[name], old, held)} if name in document else {}
    return found


def _merged_parts(parts: list[dict[str, Any]], before: list[Any], held: set[str]) -> list[dict[str, Any]]:
    """Part by part, as they stand: tensors and groups keep their order."""
    merged = []
    for place, part in enumerate(parts):
        old = before[place] if place < len(before) and isinstance(before[place], dict) else {}
        merged.append({**part, **{name: value for name, value in old.items() if name not in held}})
    return merged


def _unused(path: Path) -> Path:
    """A name beside the file that nothing has yet."""
    number, found = 1, path.with_name(f"{path.name}.before")
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}.before-{number}")
    return found


def _with_entries(value: Any, name: str = "") -> Any:
    """Maps as entries with key and value, as pbtxt writes them; those that come from pbtxt are so already."""
    if isinstance(value, list):
        return [_with_entries(each, name) for each in value]
    if isinstance(value, str):
        return Word(value) if name in _WORDS and _WORD.fullmatch(value) else value
    if not isinstance(value, Mapping):
        return value
    if name in _MAPS and not ("key" in value and set(value) <= {"key", "value"}):
        return [{"key": key, "value": _with_entries(each)} for key, each in value.items()]
    return {key: _with_entries(each, key) for key, each in value.items()}
