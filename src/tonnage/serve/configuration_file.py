"""Reads a model's configuration: config.pbtxt, config.yaml, or the JSON that a client sends. Every complaint is one
sentence with file, line and field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tonnage.errors import InvalidFile
from tonnage.hardware.yaml_errors import Located, invalid_file
from tonnage.hardware.yaml_lines import Location, format_location, read_document
from tonnage.program.text_format import Block, Plain, Value, parse_text
from tonnage.serve.configuration import (
    Batching,
    InstanceGroup,
    ModelConfiguration,
    QueuePolicy,
    TensorSpec,
    VersionPolicy,
)
from tonnage.serve.configuration_models import (
    SECTIONS,
    ConfigurationFile,
    Group,
    OutputSection,
    Policy,
    TensorSection,
    Versions,
)
from tonnage.serve.repository import ModelFolder

_MOST_BYTES = 4 << 20
_UNSUPPORTED = ("sequence_batching", "ensemble_scheduling", "model_ensemble")
_BACKENDS = {
    "onnxruntime": "onnxruntime", "onnxruntime_onnx": "onnxruntime", "onnx": "onnxruntime",
    "pytorch": "pytorch", "pytorch_libtorch": "pytorch", "torch": "pytorch", "caffe": "caffe",
}  # fmt: skip


def read_configuration(folder: ModelFolder) -> ModelConfiguration:
    """What the file beside the versions says; without one, only the name."""
    path = folder.configuration
    if path is None:
        return ModelConfiguration(name=folder.name)
    source = read_text(path) if path.suffix == ".pbtxt" else read_document(path)
    return _configuration(folder.name, source, source.value, folder.path)


def configuration_of_json(name: str, text: str, folder: Path) -> ModelConfiguration:
    """As a client sends it to load a model with another configuration than that of its folder."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"the configuration is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidFile("the configuration is not a JSON object")
    return _configuration(name, TextDocument("the configuration", value, {}), value, folder)


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A value, and the lines of its fields where they are known."""

    path: str
    value: dict[str, Any]
    lines: Mapping[tuple[str | int, ...], int]

    def line(self, location: Location) -> int:
        """Of a field, or of the nearest thing around it. A list of one may stand there as a single value."""
        place = tuple(location)
        while place:
            for each in (place, tuple(step for step in place if step != 0)):
                if each in self.lines:
                    return self.lines[each]
            place = place[:-1]
        return 1

    def error(self, location: Location, text: str, hint: str = "") -> InvalidFile:
        field = format_location(location)
        where = f"{self.path}:{self.line(location)}" if self.lines else self.path
        return InvalidFile(f"{where}: {field + ': ' if field else ''}{text}", hint)


def read_text(path: Path) -> TextDocument:
    """A pbtxt file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise InvalidFile(f"{path}: {len(data)} bytes are too many for a configuration")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidFile(f"{path}: not UTF-8 text") from None
    lines: dict[tuple[str | int, ...], int] = {}
    return TextDocument(str(path), _plain(parse_text(text, str(path)), (), lines), lines)


def _plain(block: Block, at: tuple[str | int, ...], lines: dict[tuple[str | int, ...], int]) -> dict[str, Any]:
    """As dictionaries and lists; what is repeated is a list."""
    counts: dict[str, int] = {}
    for name, _, _ in block.entries:
        counts[name] = counts.get(name, 0) + 1
    found: dict[str, Any] = {}
    for name, value, line in block.entries:
        several = counts[name] > 1
        place = (*at, name, len(found.get(name, ()))) if several else (*at, name)
        lines.setdefault((*at, name), line)
        lines[place] = line
        plain = _plain(value, place, lines) if isinstance(value, Block) else _scalar(value)
        if several:
            found.setdefault(name, []).append(plain)
        else:
            found[name] = plain
    return found


def _scalar(value: Value) -> Any:
    if not isinstance(value, Plain):
        return value.text  # type: ignore[union-attr]  # blocks are dealt with above
    if value.text in ("true", "false"):
        return value.text == "true"
    for kind in (int, float):
        try:
            return kind(value.text)
        except ValueError:
            continue
    return value.text


# -- meaning --------------------------------------------------------------------------------------------------------------


def _configuration(name: str, source: Located, value: object, folder: Path) -> ModelConfiguration:
    if isinstance(value, dict):
        for field in _UNSUPPORTED:
            if field in value:
                raise source.error((field,), "is not served here", "models are served one by one, without sequences")
    try:
        file = ConfigurationFile.model_validate(value)
    except ValidationError as error:
        raise invalid_file(source, error, SECTIONS) from None
    if file.name and file.name != name:
        raise source.error(("name",), f"is {file.name!r}, but the folder is called {name!r}")
    batching = file.dynamic_batching
    levels = {int(level): _policy(each) for level, each in batching.priority_queue_policy.items()} if batching else {}
    policy = batching.default_queue_policy if batching else None
    return ModelConfiguration(
        name=name,
        backend=_backend(file, source),
        max_batch_size=file.max_batch_size,
        inputs=tuple(_spec(each, optional=each.optional) for each in file.input),
        outputs=tuple(_spec(each, labels=_labels(folder, each.label_filename)) for each in file.output),
        groups=tuple(map(_group, file.instance_group)) or (InstanceGroup(),),
        batching=None if batching is None else Batching(
            preferred_sizes=tuple(batching.preferred_batch_size),
            most_delay_seconds=batching.max_queue_delay_microseconds / 1e6,
            preserve_ordering=batching.preserve_ordering,
        ),
        queue=QueuePolicy() if policy is None else _policy(policy),
        priority_levels=batching.priority_levels if batching else 0,
        default_priority=batching.default_priority_level if batching else 0,
        level_policies=levels,
        versions=_versions(file.version_policy),
        file_name=file.default_model_filename,
        parameters={key: _parameter(each) for key, each in file.parameters.items()},
    )  # fmt: skip


def _backend(file: ConfigurationFile, source: Located) -> str:
    named = file.backend or file.platform
    if named and named not in _BACKENDS:
        field = "backend" if file.backend else "platform"
        raise source.error((field,), f"{named!r} does not run here", f"one of {', '.join(_BACKENDS)}")
    return _BACKENDS.get(named, "")


def _spec(section: TensorSection, *, optional: bool = False, labels: tuple[str, ...] = ()) -> TensorSpec:
    return TensorSpec(
        name=section.name,
        datatype=section.data_type,
        dims=tuple(section.dims),
        optional=optional,
        reshape=None if section.reshape is None else tuple(section.reshape.shape),
        labels=labels,
        label_file=section.label_filename if isinstance(section, OutputSection) else "",
    )


def _labels(folder: Path, name: str) -> tuple[str, ...]:
    """One on each line of a file beside the configuration."""
    if not name:
        return ()
    path = folder / name
    if path.resolve().parent != folder.resolve() or not path.is_file():
        raise InvalidFile(f"{folder} has no {name}, which its configuration names as label_filename")
    return tuple(path.read_text(errors="replace").splitlines())


def _group(group: Group) -> InstanceGroup:
    return InstanceGroup(count=group.count, kind=group.kind, gpus=tuple(group.gpus), name=group.name)


def _policy(policy: Policy) -> QueuePolicy:
    return QueuePolicy(
        most_requests=policy.max_queue_size,
        timeout_seconds=policy.default_timeout_microseconds / 1e6,
        timeout_action="DELAY" if policy.timeout_action in ("DELAY", 1) else "REJECT",
        allow_timeout_override=policy.allow_timeout_override,
    )


def _versions(versions: Versions | None) -> VersionPolicy:
    if versions is None:
        return VersionPolicy()
    return VersionPolicy(
        latest=versions.latest.num_versions if versions.latest else 1,
        serves_all=versions.all is not None,
        specific=tuple(versions.specific.versions) if versions.specific else (),
    )


def _parameter(value: Any) -> str:
    """`{string_value: "2"}`, or the value itself."""
    return str(value.get("string_value", "")) if isinstance(value, dict) else str(value)
