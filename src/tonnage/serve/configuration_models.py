"""The shape of a model's configuration, checked once when it is read. Names are those of Triton's config.pbtxt.

One shape serves the three ways to write it: pbtxt, YAML and JSON. Where pbtxt repeats a field the others have a list;
a single value stands for a list of one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from tonnage.serve.datatypes import BYTES, DATATYPES

_Item = TypeVar("_Item")


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _mapped(value: Any) -> Any:
    """pbtxt writes an entry of a map as `key` and `value`."""
    if isinstance(value, dict) and set(value) <= {"key", "value"} and "key" in value:
        value = [value]
    if isinstance(value, list) and all(isinstance(each, dict) and "key" in each for each in value):
        return {str(each["key"]): each.get("value", {}) for each in value}
    return value


Several = Annotated[list[_Item], BeforeValidator(_listed)]
Mapped = Annotated[dict[str, _Item], BeforeValidator(_mapped)]
Count = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reshape(Section):
    shape: Several[int] = []


class TensorSection(Section):
    name: str = Field(min_length=1)
    data_type: str
    dims: Several[Annotated[int, Field(ge=-1)]] = []  # pbtxt cannot write an empty list otherwise
    reshape: Reshape | None = None
    format: str = ""
    is_shape_tensor: Literal[False] = False
    is_non_linear_format_io: Literal[False] = False

    @field_validator("data_type")
    @classmethod
    def _known(cls, value: str) -> str:
        name = value.removeprefix("TYPE_")
        if (found := BYTES if name == "STRING" else name) not in DATATYPES:
            raise ValueError(f"{value!r} is no datatype; there are {', '.join(f'TYPE_{each}' for each in DATATYPES)}")
        return found


class InputSection(TensorSection):
    optional: bool = False
    allow_ragged_batch: Literal[False] = False


class OutputSection(TensorSection):
    label_filename: str = ""


class Group(Section):
    name: str = ""
    count: Annotated[int, Field(ge=1, le=256)] = 1
    kind: Literal["KIND_AUTO", "KIND_CPU", "KIND_GPU"] = "KIND_AUTO"
    gpus: Several[Count] = []
    host_policy: str = ""
    passive: Literal[False] = False
    profile: Several[str] = []
    rate_limiter: dict[str, Any] = {}
    secondary_devices: Several[Any] = []


class Policy(Section):
    timeout_action: Literal["REJECT", "DELAY", 0, 1] = "REJECT"
    default_timeout_microseconds: Count = 0
    allow_timeout_override: bool = False
    max_queue_size: Count = 0


class DynamicBatching(Section):
    preferred_batch_size: Several[Annotated[int, Field(ge=1)]] = []
    max_queue_delay_microseconds: Count = 0
    preserve_ordering: bool = False
    priority_levels: Count = 0
    default_priority_level: Count = 0
    default_queue_policy: Policy | None = None
    priority_queue_policy: Mapped[Policy] = {}


class Latest(Section):
    num_versions: Annotated[int, Field(ge=1)] = 1


class Specific(Section):
    versions: Several[Annotated[int, Field(ge=1)]] = []


class Versions(Section):
    latest: Latest | None = None
    all: Section | None = None
    specific: Specific | None = None


class ConfigurationFile(Section):
    """The fields of Triton's ModelConfig that mean something here, and those that may safely be passed over."""

    name: str = ""
    platform: str = ""
    backend: str = ""
    max_batch_size: Count = 0
    input: Several[InputSection] = []
    output: Several[OutputSection] = []
    version_policy: Versions | None = None
    instance_group: Several[Group] = []
    dynamic_batching: DynamicBatching | None = None
    default_model_filename: str = ""
    parameters: Mapped[Any] = {}
    # What these ask for is about other backends, or changes nothing that a client sees.
    runtime: str = ""
    optimization: Any = None
    batch_input: Several[Any] = []
    batch_output: Several[Any] = []
    cc_model_filenames: Any = None
    metric_tags: Any = None
    model_warmup: Any = None
    model_operations: Any = None
    response_cache: Any = None
    model_metrics: Any = None
    model_transaction_policy: Any = None


SECTIONS: tuple[type[BaseModel], ...] = (
    ConfigurationFile, InputSection, OutputSection, Reshape, Group, Policy, DynamicBatching, Latest, Specific, Versions,
)  # fmt: skip
