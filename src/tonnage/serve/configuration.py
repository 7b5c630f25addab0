"""How a model is served: its tensors, instances, batching, queue and versions. Read from files by `configuration_file`,
completed from the model itself by `deriving`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.serve.datatypes import BYTES

# What clients know these as.
PLATFORMS = {"onnxruntime": "onnxruntime_onnx", "pytorch": "pytorch_libtorch", "caffe": "caffe"}
REJECT, DELAY = "REJECT", "DELAY"
AUTO, CPU, GPU = "KIND_AUTO", "KIND_CPU", "KIND_GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """An input or an output. `dims` are without the axis of the batch; -1 is any size."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = False
    reshape: tuple[int, ...] | None = None  # what the model itself takes or makes, where it differs
    labels: tuple[str, ...] = ()  # of the classes that an output scores
    label_file: str = ""  # where they come from

    def to_json(self) -> dict[str, Any]:
        kind = "TYPE_STRING" if self.datatype == BYTES else f"TYPE_{self.datatype}"
        return {"name": self.name, "data_type": kind, "dims": list(self.dims)}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """Who may wait, and how long."""

    most_requests: int = 0  # 0: the server's own limit
    timeout_seconds: float = 0.0  # 0: as long as it takes
    timeout_action: str = REJECT
    allow_timeout_override: bool = True  # clients may ask for a shorter one


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Requests that wait together run together."""

    preferred_sizes: tuple[int, ...] = ()
    most_delay_seconds: float = 0.0  # that the first may wait for others
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """So many processes with the model, on the processor or on each of the named GPUs."""

    count: int = 1
    kind: str = AUTO
    gpus: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPolicy:
    """Which versions of the folder are served: the latest so many, all, or those that are named."""

    latest: int = 1
    serves_all: bool = False
    specific: tuple[int, ...] = ()

    def chosen(self, versions: list[int]) -> list[int]:
        if self.serves_all:
            return sorted(versions)
        if self.specific:
            return sorted(set(versions) & set(self.specific))
        return sorted(versions)[-self.latest :]

    def to_json(self) -> dict[str, Any]:
        if self.serves_all:
            return {"all": {}}
        if self.specific:
            return {"specific": {"versions": list(self.specific)}}
        return {"latest": {"num_versions": self.latest}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfiguration:
    """Everything about how one model is served."""

    name: str
    backend: str = ""  # onnxruntime, pytorch or caffe
    max_batch_size: int = 0  # 0: tensors have no axis for a batch
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    groups: tuple[InstanceGroup, ...] = (InstanceGroup(),)
    batching: Batching | None = None
    queue: QueuePolicy = field(default_factory=QueuePolicy)
    priority_levels: int = 0
    default_priority: int = 0
    level_policies: Mapping[int, QueuePolicy] = field(default_factory=dict)
    versions: VersionPolicy = field(default_factory=VersionPolicy)
    file_name: str = ""  # in the folder of a version; "" for the usual ones
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        return PLATFORMS.get(self.backend, "")

    @property
    def has_batches(self) -> bool:
        return self.max_batch_size > 0

    def shape_of(self, spec: TensorSpec) -> list[int]:
        """As clients see it."""
        return [-1, *spec.dims] if self.has_batches else list(spec.dims)

    def policy_of(self, priority: int) -> QueuePolicy:
        return self.level_policies.get(priority, self.queue)

    def metadata(self, versions: list[str]) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": versions,
            "platform": self.platform,
            "inputs": [self._described(spec) for spec in self.inputs],
            "outputs": [self._described(spec) for spec in self.outputs],
        }

    def _described(self, spec: TensorSpec) -> dict[str, Any]:
        return {"name": spec.name, "datatype": spec.datatype, "shape": self.shape_of(spec)}


def without_labels(configuration: ModelConfiguration) -> ModelConfiguration:
    """They may be many, and an instance has no use for them."""
    return replace(configuration, outputs=tuple(replace(spec, labels=()) for spec in configuration.outputs))


def with_labels(configuration: ModelConfiguration, labelled: ModelConfiguration) -> ModelConfiguration:
    """With the labels of another configuration of the same model."""
    labels = {spec.name: spec.labels for spec in labelled.outputs}
    outputs = tuple(replace(spec, labels=labels.get(spec.name, ())) for spec in configuration.outputs)
    return replace(configuration, outputs=outputs)
