"""The shape of a campaign file."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tonnage.benchmark.campaign import MAX_POINTS
from tonnage.benchmark.layers import MOST_ELEMENTS
from tonnage.hardware.cluster_models import Name, Section
from tonnage.hardware.quantities import parse_duration


def _read_duration(text: object) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from error


Duration = Annotated[float, BeforeValidator(_read_duration), Field(gt=0)]


class WorkloadSection(Section):
    """Points of one family. What `vary` and `fix` may hold depends on the family and is checked by the reader."""

    family: str = Field(description="Name of the family.")
    sample: Literal["grid", "random", "latin-hypercube"] = Field(description="How points are chosen.")
    count: int | None = Field(None, ge=1, le=MAX_POINTS, description="How many points; a grid takes all it has.")
    vary: dict[str, object] = Field({}, description="Numbers that change from point to point.")
    fix: dict[str, object] = Field({}, description="Numbers that do not; all others have their defaults.")


class LayersSection(Section):
    """Single layers of all kinds, with random shapes."""

    count: int = Field(ge=1, le=10_000, description="How many layers.")
    kinds: list[str] = Field([], description="Only these kinds; all if there are none.")
    elements: int = Field(
        MOST_ELEMENTS, ge=1 << 12, le=MOST_ELEMENTS, description="Of the largest tensor of a layer; work goes with it."
    )


class CampaignFile(Section):
    """A campaign: what to measure, how, and for how long."""

    name: Name = Field(description="Name of the campaign; every row of the database has it.")
    description: str = Field("", description="What it is for.")
    seed: int = Field(0, ge=0, description="The same seed chooses the same points.")
    budget: Duration = Field(600.0, description="Time for measuring; points beyond it are left for the next run.")
    repetitions: int = Field(3, ge=1, le=100, description="How often each point is run.")
    steps: int = Field(20, ge=1, le=10_000, description="Steps to measure after the first.")
    kernels: bool = Field(True, description="Also one row for each kernel.")
    limit: Duration = Field(120.0, description="Time for one point or layer; what takes longer has failed.")
    workloads: list[WorkloadSection] = Field(min_length=1, description="What to run.")
    layers: LayersSection | None = Field(None, description="Single layers to run between the workloads.")
