"""What the configuration server takes and gives, as pydantic models: the edge where values are checked once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tonnage.configure.configuration import Communication, HardwareConfiguration
from tonnage.configure.work import MOST_GPUS, MOST_STEPS, Known, Work
from tonnage.estimate.estimate import Interval
from tonnage.hardware import find_gpu
from tonnage.profile.indicators import Indicators
from tonnage.service.request import Run
from tonnage.store.rows import Environment

_MOST = 2**53 - 1  # what every reader of JSON keeps exactly
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=_MOST)]
Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
# No control characters, such as the NUL that PostgreSQL does not store.
Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)]
LabelId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", max_length=32)]


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class IndicatorsBody(Body):
    """Indicators of a run, per step. Fields of later versions are passed over."""

    program: Annotated[str, Field(max_length=4000, pattern=r"^[^\x00-\x1f\x7f]*$")]
    program_digest: Digest
    basis: Literal["measured", "predicted"]
    device: Literal["cuda", "cpu"]
    gpu: Text = ""
    gpu_count: Annotated[int, Field(ge=0, le=MOST_GPUS)] = 1
    steps: Annotated[int, Field(ge=1, le=_MOST)]
    step_seconds: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    forward_seconds: Seconds
    backward_seconds: Seconds = 0.0
    optimizer_seconds: Seconds = 0.0
    h2d_seconds: Seconds = 0.0
    d2h_seconds: Seconds = 0.0
    data_wait_seconds: Seconds = 0.0
    idle_seconds: Seconds = 0.0
    forward_span_seconds: Seconds | None = None
    backward_span_seconds: Seconds | None = None
    optimizer_span_seconds: Seconds | None = None
    h2d_busy_seconds: Seconds | None = None
    d2h_busy_seconds: Seconds | None = None
    h2d_bytes: Bytes = 0
    d2h_bytes: Bytes = 0
    pinned_share: Share = 0.0
    peak_host_bytes: Bytes | None = None
    peak_gpu_bytes: Bytes | None = None
    cpu_cores_used: Amount | None = None
    cpu_utilisation: Amount | None = None
    loader_workers: Annotated[int, Field(ge=0, le=10_000)] | None = None
    gpu_utilisation: Amount | None = None
    power_watts: Amount | None = None

    def value(self) -> Indicators:
        return Indicators.from_dict(self.model_dump(exclude_none=True))


class KnownBody(Body):
    """What an estimate says of the program on one GPU."""

    forward_seconds: Seconds
    backward_seconds: Seconds = 0.0
    optimizer_seconds: Seconds = 0.0
    step_seconds: Seconds
    step_seconds_low: Seconds
    step_seconds_high: Seconds
    device_bytes: Bytes

    def value(self) -> Known:
        return Known(
            forward_seconds=self.forward_seconds,
            backward_seconds=self.backward_seconds,
            optimizer_seconds=self.optimizer_seconds,
            step_seconds=Interval(self.step_seconds, self.step_seconds_low, self.step_seconds_high),
            device_bytes=self.device_bytes,
        )


class ConfigurationRequest(Body):
    """The program by its indicators, and what its user wants. The program itself is never sent."""

    indicators: IndicatorsBody
    run_steps: Annotated[int, Field(ge=1, le=MOST_STEPS, description="Of the run, as one GPU would take them.")] = 1000
    most_gpus: Annotated[int, Field(ge=1, le=MOST_GPUS, description="That the program knows how to use.")] = 1
    estimates: Annotated[dict[Text, KnownBody], Field(max_length=500, description="By GPU.")] = {}
    gradient_bytes: Bytes | None = None
    framework: Text = "torch"
    framework_version: Text = ""

    def value(self) -> Work:
        return Work(
            indicators=self.indicators.value(),
            run_steps=self.run_steps,
            most_gpus=self.most_gpus,
            known={find_gpu(name).name: known.value() for name, known in self.estimates.items()},
            gradient_bytes=self.gradient_bytes,
            framework=self.framework,
            framework_version=self.framework_version,
        )


class HardwareView(Body):
    """As in `HardwareConfiguration`."""

    node_type: str
    gpu: str
    gpu_count: int
    communication: Communication
    pcie_generation: int | None
    pcie_lanes: int | None
    cpu_cores: int
    sockets: int
    memory_bytes: int
    loader_workers: int
    pinned_memory: bool

    def value(self) -> HardwareConfiguration:
        return HardwareConfiguration(**self.model_dump())


class IntervalView(Body):
    value: float
    low: float
    high: float


class ConsideredView(Body):
    """A candidate; `reason` says why it was not taken, and nothing is predicted where it cannot run the program."""

    name: str
    configuration: HardwareView | None
    step_seconds: float | None
    run_seconds: IntervalView | None
    basis: str | None
    bound_by: str | None
    reason: str


class ChoiceView(Body):
    """What was chosen, by what, and from what. `overruled`: the rules' choice was given up for the minimum."""

    configuration: HardwareView
    step_seconds: float
    run_seconds: IntervalView
    parts_seconds: dict[str, float]
    basis: str
    bound_by: str
    rules_version: str
    rules_choice: HardwareView
    rules_run_seconds: Annotated[float, Field(gt=0)]
    minimum: HardwareView
    minimum_run_seconds: Annotated[float, Field(gt=0)]
    overruled: bool
    reasons: list[str]
    considered: list[ConsideredView]

    @classmethod
    def of(cls, choice: Mapping[str, Any]) -> ChoiceView:
        return cls.model_validate(choice)


class ConfigurationAnswer(Body):
    """The label, and the choice that it came from. `text` is what belongs in label.json, to the byte."""

    label: dict[str, Any]
    text: str
    annotations: dict[str, str]
    choice: ChoiceView
    warnings: list[str]


class ServerView(Body):
    name: str
    public_key: str
    fingerprint: str
    rules_version: str
    images_version: str
    tonnage_version: str


class RulesView(Body):
    version: str
    rules: list[dict[str, Any]]
    text: str


class InventoryView(Body):
    name: str
    gpus: list[str]
    candidates: list[dict[str, Any]]


class MachineBody(Body):
    """Where it ran; what is not known is empty."""

    device: Text = ""
    gpu: Text = ""
    gpu_memory_bytes: Bytes | None = None
    driver: Text = ""
    cuda: Text = ""
    torch: Text = ""
    python: Text = ""
    platform: Text = ""
    cpu: Text = ""
    cpu_cores: Annotated[int, Field(ge=1, le=100_000)] | None = None
    tonnage: Text = ""

    def value(self) -> Environment:
        return Environment(**self.model_dump())


class RunBody(Body):
    """The run as a whole, from the end of its first step on."""

    state: Literal["running", "succeeded", "failed", "cancelled"]
    steps: Annotated[int, Field(ge=0, le=_MOST)]
    seconds: Seconds

    def value(self) -> Run:
        return Run(**self.model_dump())


class MeasurementBody(Body):
    """What a program that was deployed with a label really did."""

    indicators: IndicatorsBody
    machine: MachineBody = MachineBody()
    run: RunBody | None = None


class MeasuredView(Body):
    measured_at: datetime
    step_seconds: float
    error: float = Field(description="Of the prediction: 0.1 means that it was 10 % above what was measured.")
    indicators: dict[str, Any]
    run: dict[str, Any] | None


class LabelView(Body):
    """Predicted beside measured."""

    label: dict[str, Any]
    program: str
    predicted_step_seconds: float
    choice: ChoiceView
    measurements: list[MeasuredView]


class ErrorView(Body):
    message: str
    hint: str
