"""The shape of a model's configuration, checked once when it is read. Names are those of Triton's config.pbtxt.

One shape serves the three ways to write it: pbtxt, YAML and JSON. Where pbtxt repeats a field the others have a list;
a single value stands for a list of one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tonnage.serve.datatypes import BYTES, DATATYPES

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")
_MOST_INT32, _MOST_INT64, _MOST_UINT64 = 2**31 - 1, 2**63 - 1, 2**64 - 1
_FOREVER = 2**50  # microseconds: some 35 years


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _mapped(value: Any) -> Any:
    """pbtxt writes an entry of a map as `key` and `value`."""
    if isinstance(value, dict) and set(value) <= {"key", "value"} and isinstance(value.get("key"), str | int):
        value = [value]
    if not isinstance(value, list):
        return value
    found: dict[Any, Any] = {}
    for each in value:
        if not isinstance(each, dict) or not isinstance(each.get("key"), str | int):
            raise ValueError("must be a mapping, or entries with key and value")
        if each["key"] in found:
            raise ValueError(f"the key {each['key']!r} is given twice")
        found[each["key"]] = each.get("value", {})
    return found


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {'true' if value else 'false'}")
    return value


Several = Annotated[list[_Item], BeforeValidator(_listed)]
Mapped = Annotated[dict[_Key, _Item], BeforeValidator(_mapped)]
Whole = Annotated[int, BeforeValidator(_number)]
Count = Annotated[Whole, Field(ge=0, le=_MOST_INT32)]
Level = Annotated[Whole, Field(ge=0, le=_MOST_UINT64)]
Microseconds = Annotated[Level, AfterValidator(lambda count: min(count, _FOREVER))]
Size = Annotated[Whole, Field(ge=-1, le=_MOST_INT64)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reshape(Section):
    shape: Several[Size] = []


class TensorSection(Section):
    name: str = Field(min_length=1)
    data_type: str
    dims: Several[Size] = []  # none: a single value
    reshape: Reshape | None = None
    format: str = ""
    is_shape_tensor: Literal[False] = False
    is_non_linear_format_io: Literal[False] = False

    @field_validator("data_type")
    @classmethod
    def _known(cls, value: str) -> str:
        name = value.removeprefix("TYPE_")
        if (found := BYTES if name == "STRING" else name) not in DATATYPES:
            known = ", ".join("TYPE_STRING" if each == BYTES else f"TYPE_{each}" for each in DATATYPES)
            raise ValueError(f"{value!r} is no datatype; there are {known}")
        return found


class InputSection(TensorSection):
    optional: bool = False
    allow_ragged_batch: Literal[False] = False


class OutputSection(TensorSection):
    label_filename: str = ""


class Group(Section):
    name: str = ""
    count: Annotated[Whole, Field(ge=1, le=256)] = 1
    kind: Literal["KIND_AUTO", "KIND_CPU", "KIND_GPU"] = "KIND_AUTO"
    gpus: Several[Count] = []
    host_policy: str = ""
    passive: Literal[False] = False
    profile: Several[str] = []
    rate_limiter: dict[str, Any] = {}
    secondary_devices: Several[Any] = []


class Policy(Section):
    timeout_action: Literal["REJECT", "DELAY", 0, 1] = "REJECT"
    default_timeout_microseconds: Microseconds = 0
    allow_timeout_override: bool = False
    max_queue_size: Count = 0


class DynamicBatching(Section):
    preferred_batch_size: Several[Annotated[Whole, Field(ge=1, le=_MOST_INT32)]] = []
    max_queue_delay_microseconds: Microseconds = 0
    preserve_ordering: bool = False
    priority_levels: Level = 0
    default_priority_level: Level = 0
    default_queue_policy: Policy | None = None
    priority_queue_policy: Mapped[Whole, Policy] = {}


class Latest(Section):
    num_versions: Annotated[Whole, Field(ge=1, le=_MOST_INT32)] = 1


class Specific(Section):
    versions: Annotated[Several[Annotated[Whole, Field(ge=1, le=_MOST_INT64)]], Field(min_length=1)]


class Versions(Section):
    latest: Latest | None = None
    all: Section | None = None
    specific: Specific | None = None

    @model_validator(mode="after")
    def _only_one(self) -> Versions:
        if sum(each is not None for each in (self.latest, self.all, self.specific)) > 1:
            raise ValueError("must be one of latest, all and specific")
        return self


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
    parameters: Mapped[str, Any] = {}
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

    @field_validator("input", "output")
    @classmethod
    def _named_once(cls, specs: list[TensorSection]) -> list[TensorSection]:
        names: set[str] = set()
        for spec in specs:
            if spec.name in names:
                raise ValueError(f"{spec.name!r} is named twice")
            names.add(spec.name)
        return specs


SECTIONS: tuple[type[BaseModel], ...] = (
    ConfigurationFile, InputSection, OutputSection, Reshape, Group, Policy, DynamicBatching, Latest, Specific, Versions,
)  # fmt: skip
