"""The inverse question: which configurations meet a time, a memory limit and a number of GPUs?

Every configuration is predicted forward, so both questions have one answer. Several GPUs share a batch (data
parallelism); what they add is not measured yet and comes from the links in the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from tonnage.errors import UsageError
from tonnage.estimate.cluster_features import Features
from tonnage.estimate.cluster_selection import Constraints
from tonnage.estimate.model import EstimationModel, Prediction, Query
from tonnage.hardware import Gpu

# Counts that grow with the batch; the others belong to the network.
_OF_THE_BATCH = (
    "convolution_multiply_adds", "dense_multiply_adds", "attention_multiply_adds", "recurrent_multiply_adds",
    "layer_bytes", "h2d_bytes", "d2h_bytes", "mapped_bytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One choice of the free variables, and what is predicted for it."""

    gpu: str
    gpus: int
    batch: int  # of all GPUs together
    precision: str
    step_seconds: Prediction
    bytes: Prediction  # of each GPU

    @property
    def byte_seconds_sample(self) -> float:
        """Resource consumption: memory of all GPUs, for as long as a step holds it, for one sample."""
        return self.gpus * self.bytes.value * self.step_seconds.value / self.batch

    @property
    def words(self) -> str:
        return f"{self.gpus} x {self.gpu}, batch {self.batch}, {self.precision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Configurations that meet all limits, the cheapest first; where none does, which limit binds, and by how much."""

    configurations: tuple[Configuration, ...]
    binding: str = ""  # "step_seconds", "bytes" or "gpus"
    factor: float = 1.0  # how many times the limit the nearest configuration needs
    nearest: Configuration | None = None

    @property
    def reason(self) -> str:
        """One sentence; empty where there are configurations."""
        if self.nearest is None:
            return ""
        need = f"the nearest configuration ({self.nearest.words}) needs {self.factor:.2f} times the limit"
        return f"{self.binding} binds: {need}"


def configurations_meeting(
    model: EstimationModel,
    variants: Sequence[Features],
    gpus: Sequence[Gpu],
    *,
    batches: Sequence[int],
    counts: Sequence[int] = (1,),
    constraints: Constraints,
) -> Answer:
    """Which of these meet the constraints. `variants` are the network in each precision that may be chosen."""
    if not (variants and gpus and batches and counts) or min(*batches, *counts) < 1:
        raise UsageError("the inverse question needs a network, a GPU, and batches and counts from 1 on")
    tried = [
        (configuration, _excess(configuration, gpu, constraints))
        for gpu in gpus
        for configuration in _configurations(model, variants, gpu, batches, counts)
    ]
    meeting = [configuration for configuration, excess in tried if max(excess.values()) <= 1.0]
    if meeting:
        return Answer(configurations=tuple(sorted(meeting, key=lambda choice: choice.byte_seconds_sample)))
    nearest, excess = min(tried, key=lambda pair: max(pair[1].values()))
    binding = max(excess, key=lambda name: excess[name])
    return Answer(configurations=(), binding=binding, factor=excess[binding], nearest=nearest)


def at_batch(features: Features, batch: int) -> Features:
    """The same network with another batch."""
    share = batch / features.batch
    counts = {name: value * (share if name in _OF_THE_BATCH else 1.0) for name, value in features.counts.items()}
    return replace(features, batch=batch, counts=counts)


def _configurations(
    model: EstimationModel, variants: Sequence[Features], gpu: Gpu, batches: Sequence[int], counts: Sequence[int]
) -> Iterator[Configuration]:
    for features in variants:
        for batch in sorted(set(batches)):
            for count in sorted(set(counts)):
                if count <= batch:
                    yield configuration(model, features, gpu, batch, count)


def configuration(model: EstimationModel, features: Features, gpu: Gpu, batch: int, count: int) -> Configuration:
    """The forward question for one choice of the free variables."""
    share = at_batch(features, ceil(batch / count))
    predictions = model.predict(Query(features=share), gpu)
    step, exchange = predictions["step_seconds"], exchange_seconds(features, gpu, count)
    return Configuration(
        gpu=gpu.name,
        gpus=count,
        batch=batch,
        precision=features.precision,
        # At best the exchange hides behind the backward pass, so the low bound goes without.
        step_seconds=replace(step, value=step.value + exchange, high=step.high + exchange),
        bytes=predictions["device_bytes"],
    )


def exchange_seconds(features: Features, gpu: Gpu, count: int) -> float:
    """Adding up gradients in a ring, 2 (n - 1) / n of their bytes over one direction of the GPU's link."""
    if features.mode != "training" or count == 1:
        return 0.0
    link = gpu.peer_link.bytes_second / 2 if gpu.peer_link else gpu.pcie_bytes_second
    return 2 * (count - 1) / count * 4 * features.counts["parameters"] / link


def _excess(choice: Configuration, gpu: Gpu, constraints: Constraints) -> dict[str, float]:
    """How many times each limit is needed; the GPU's own memory is always a limit."""
    memory = min(constraints.max_bytes or gpu.usable_bytes, gpu.usable_bytes)
    excess = {"bytes": choice.bytes.value / memory}
    if constraints.max_step_seconds is not None:
        excess["step_seconds"] = choice.step_seconds.value / constraints.max_step_seconds
    if constraints.max_gpus is not None:
        excess["gpus"] = choice.gpus / constraints.max_gpus
    return excess
