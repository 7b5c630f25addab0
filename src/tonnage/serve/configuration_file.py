"""Reads a model's configuration: config.pbtxt, config.yaml, or the JSON that a client sends. Every complaint is one
sentence with file, line and field."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from tonnage.errors import InvalidFile
from tonnage.hardware.yaml_errors import Located, invalid_file
from tonnage.hardware.yaml_lines import Document, read_document
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
    DynamicBatching,
    Group,
    OutputSection,
    Policy,
    TensorSection,
    Versions,
)
from tonnage.serve.pbtxt import TextDocument, read_pbtxt
from tonnage.serve.repository import ModelFolder

_MOST_LABEL_BYTES = 16 << 20
_UNSUPPORTED = ("sequence_batching", "ensemble_scheduling", "model_ensemble")
_BACKENDS = {
    "onnxruntime": "onnxruntime", "onnxruntime_onnx": "onnxruntime", "onnx": "onnxruntime",
    "pytorch": "pytorch", "pytorch_libtorch": "pytorch", "torch": "pytorch", "caffe": "caffe",
}  # fmt: skip


def read_configuration(folder: ModelFolder) -> ModelConfiguration:
    """What the file beside the versions says; without one, only the name."""
    if folder.configuration is None:
        return ModelConfiguration(name=folder.name)
    source = read_source(folder.configuration)
    return configuration_of(folder.name, source, source.value, folder.path)


def read_source(path: Path) -> TextDocument | Document:
    """What the file says, before anybody asks what it means."""
    return read_pbtxt(path) if path.suffix == ".pbtxt" else read_document(path)


def configuration_of_json(name: str, text: str, folder: Path) -> ModelConfiguration:
    """As a client sends it to load a model with another configuration than that of its folder."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"the configuration is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidFile("the configuration is not a JSON object")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidFile("the configuration holds half a character (a surrogate)") from None
    return configuration_of(name, TextDocument("the configuration", value, {}), value, folder)


# -- meaning --------------------------------------------------------------------------------------------------------------


def configuration_of(name: str, source: Located, value: object, folder: Path) -> ModelConfiguration:
    """Of what was read from a file; raises `InvalidFile`."""
    if isinstance(value, dict):
        for field in _UNSUPPORTED:
            if field in value:
                raise source.error((field,), "is not served here", "models are served one by one, without sequences")
    try:
        file = ConfigurationFile.model_validate(value)
    except ValidationError as error:
        raise invalid_file(source, error, SECTIONS) from None
    for what, sections in (("input", file.input), ("output", file.output)):
        for place, section in enumerate(sections):
            _check_reshape(section, source, (what, place, "reshape"))
    if file.name and file.name != name:
        raise source.error(("name",), f"is {file.name!r}, but the folder is called {name!r}")
    batching = file.dynamic_batching
    if batching is not None:
        _check_batching(batching, file.max_batch_size, source)
    levels = {level: _policy(each) for level, each in batching.priority_queue_policy.items()} if batching else {}
    policy = batching.default_queue_policy if batching else None
    return ModelConfiguration(
        name=name,
        backend=_backend(file, source),
        max_batch_size=file.max_batch_size,
        inputs=tuple(_spec(each, optional=each.optional) for each in file.input),
        outputs=tuple(
            _spec(each, labels=_labels(folder, each, source, place)) for place, each in enumerate(file.output)
        ),
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


def _check_reshape(section: TensorSection, source: Located, field: tuple[str | int, ...]) -> None:
    """Both shapes hold the same elements, and as many open sizes."""
    if section.reshape is None:
        return
    dims, shape = section.dims, section.reshape.shape
    fixed, others = ([size for size in each if size != -1] for each in (dims, shape))
    if len(dims) - len(fixed) != len(shape) - len(others) or prod(fixed) != prod(others):
        raise source.error(field, f"{shape} does not hold as many elements as dims, which are {dims}")


def _check_batching(batching: DynamicBatching, most: int, source: Located) -> None:
    def refuse(text: str, *field: str | int) -> NoReturn:
        raise source.error(("dynamic_batching", *field), text)

    for place, size in enumerate(batching.preferred_batch_size):
        if most and size > most:
            refuse(f"is {size}, more than max_batch_size, which is {most}", "preferred_batch_size", place)
    levels, default = batching.priority_levels, batching.default_priority_level
    if default > levels:
        refuse(f"is {default}, more than priority_levels, which is {levels}", "default_priority_level")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            refuse(f"is for level {level}, but priority_levels is {levels}", "priority_queue_policy")


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


def _labels(folder: Path, section: OutputSection, source: Located, place: int) -> tuple[str, ...]:
    """One on each line of a file beside the configuration."""
    name = section.label_filename
    if not name:
        return ()
    field = ("output", place, "label_filename")
    if "/" in name or "\0" in name or not (folder / name).is_file():
        raise source.error(field, f"{folder} has no file {name!r}")
    if (folder / name).stat().st_size > _MOST_LABEL_BYTES:
        raise source.error(field, f"{name} is larger than {_MOST_LABEL_BYTES:,} bytes")
    try:
        return tuple((folder / name).read_text("utf-8", errors="replace").splitlines())
    except OSError as error:
        raise source.error(field, f"{name} cannot be read: {error.strerror}") from None


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
    if isinstance(value, dict):
        value = value.get("string_value", "")
    return str(value).lower() if isinstance(value, bool) else str(value)
