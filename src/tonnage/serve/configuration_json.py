"""A configuration as clients ask for it: the JSON form of Triton's."""

from __future__ import annotations

from typing import Any

from tonnage.serve.configuration import (
    Batching,
    InstanceGroup,
    ModelConfiguration,
    QueuePolicy,
    TensorSpec,
)


def configuration_json(configuration: ModelConfiguration) -> dict[str, Any]:
    """With every field that clients look at, whether it was set or not."""
    found: dict[str, Any] = {
        "name": configuration.name,
        "platform": configuration.platform,
        "backend": configuration.backend,
        "version_policy": configuration.versions.to_json(),
        "max_batch_size": configuration.max_batch_size,
        "input": [_input(spec) for spec in configuration.inputs],
        "output": [_output(spec) for spec in configuration.outputs],
        "batch_input": [],
        "batch_output": [],
        "optimization": {"priority": "PRIORITY_DEFAULT"},
        "instance_group": [_group(each, configuration.name, place) for place, each in enumerate(configuration.groups)],
        "default_model_filename": configuration.file_name,
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {key: {"string_value": value} for key, value in configuration.parameters.items()},
        "model_warmup": [],
    }  # fmt: skip
    if configuration.batching is not None:
        found["dynamic_batching"] = _batching(configuration, configuration.batching)
    return found


def _input(spec: TensorSpec) -> dict[str, Any]:
    more = {"format": "FORMAT_NONE", "is_shape_tensor": False, "allow_ragged_batch": False, "optional": spec.optional}
    return {**spec.to_json(), **_reshape(spec), **more}


def _output(spec: TensorSpec) -> dict[str, Any]:
    return {**spec.to_json(), **_reshape(spec), "label_filename": spec.label_file, "is_shape_tensor": False}


def _reshape(spec: TensorSpec) -> dict[str, Any]:
    return {} if spec.reshape is None else {"reshape": {"shape": list(spec.reshape)}}


def _group(group: InstanceGroup, name: str, place: int) -> dict[str, Any]:
    return {
        "name": group.name or f"{name}_{place}", "kind": group.kind, "count": group.count, "gpus": list(group.gpus),
        "secondary_devices": [], "profile": [], "passive": False, "host_policy": "",
    }  # fmt: skip


def _batching(configuration: ModelConfiguration, batching: Batching) -> dict[str, Any]:
    return {
        "preferred_batch_size": list(batching.preferred_sizes),
        "max_queue_delay_microseconds": round(batching.most_delay_seconds * 1e6),
        "preserve_ordering": batching.preserve_ordering,
        "priority_levels": configuration.priority_levels,
        "default_priority_level": configuration.default_priority,
        "default_queue_policy": policy_json(configuration.queue),
        "priority_queue_policy": {
            str(level): policy_json(each) for level, each in configuration.level_policies.items()
        },
    }


def policy_json(policy: QueuePolicy) -> dict[str, Any]:
    return {
        "timeout_action": policy.timeout_action,
        "default_timeout_microseconds": round(policy.timeout_seconds * 1e6),
        "allow_timeout_override": policy.allow_timeout_override,
        "max_queue_size": policy.most_requests,
    }
