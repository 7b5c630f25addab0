"""Reads campaign files; every complaint is one sentence with file, line and field."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from tonnage.benchmark.axis import Axis, axis_of_range, axis_of_values, in_steps
from tonnage.benchmark.campaign import MAX_POINTS, Campaign, Choice, choose
from tonnage.benchmark.campaign_models import CampaignFile, LayersSection, WorkloadSection
from tonnage.benchmark.layers import KINDS, Layer, sample_layers
from tonnage.benchmark.workloads.family import MAX_PARAMETERS, Family
from tonnage.benchmark.workloads.number import Number, Value
from tonnage.benchmark.workloads.point import CONDITIONS, Point
from tonnage.benchmark.workloads.registry import find_family
from tonnage.errors import NotFound, UsageError
from tonnage.hardware.catalogue import nearest
from tonnage.hardware.yaml_errors import Problem, invalid_file
from tonnage.hardware.yaml_lines import Location, read_document

_FOLDER = "campaigns"


def find_campaign(name_or_path: str | Path) -> Campaign:
    """A campaign that comes with Tonnage, by its name, or one in a file; raises `NotFound` or `InvalidFile`."""
    text = str(name_or_path)
    if text in built_in_campaigns():
        with resources.as_file(resources.files("tonnage.benchmark").joinpath(_FOLDER, f"{text}.yaml")) as path:
            return read_campaign(path)
    if not Path(text).exists() and not text.endswith((".yaml", ".yml")):
        names = ", ".join(built_in_campaigns())
        raise NotFound(f"there is no campaign {text!r}", f"name one of {names}, or a file such as campaign.yaml")
    return read_campaign(text)


def built_in_campaigns() -> tuple[str, ...]:
    """Names of the campaigns that come with Tonnage."""
    files = resources.files("tonnage.benchmark").joinpath(_FOLDER).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def read_campaign(path: str | Path) -> Campaign:
    """The campaign that a file describes, with its points chosen; raises `NotFound` or `InvalidFile`."""
    document = read_document(path)
    try:
        return _campaign(CampaignFile.model_validate(document.value))
    except ValidationError as error:
        raise invalid_file(document, error, (CampaignFile, WorkloadSection, LayersSection)) from error
    except Problem as problem:
        raise document.error(problem.location, problem.text) from problem


def _campaign(file: CampaignFile) -> Campaign:
    groups = (_group(section, ("workloads", index), file.seed) for index, section in enumerate(file.workloads))
    return Campaign(
        name=file.name,
        groups=tuple(groups),
        description=file.description,
        seed=file.seed,
        budget_seconds=file.budget,
        repetitions=file.repetitions,
        steps=file.steps,
        kernels=file.kernels,
        limit_seconds=file.limit,
        layers=_layers(file.layers, file.seed) if file.layers else (),
    )


def _layers(section: LayersSection, seed: int) -> tuple[Layer, ...]:
    for index, kind in enumerate(section.kinds):
        if kind not in KINDS:
            meant = nearest(kind, KINDS)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(KINDS)}"
            raise Problem(("layers", "kinds", index), f"there is no layer {kind!r}; {hint}")
    found = tuple(sample_layers(section.count, seed, section.kinds, section.elements))
    if not found:
        raise Problem(("layers", "elements"), f"no layer is that small: {section.elements}")
    return found


def _group(section: WorkloadSection, at: Location, seed: int) -> tuple[Point, ...]:
    choice = _choice(section, at)
    # The place in the file is part of the seed: equal entries shall not choose equal points.
    found = choose(choice, (seed, int(at[1])))
    if not found:
        raise Problem(at, f"no point is left: every network would have more than {MAX_PARAMETERS:,} parameters")
    _refuse_idle(section, found, at)
    return found


def _choice(section: WorkloadSection, at: Location) -> Choice:
    family = _family(section, at)
    is_grid = section.sample == "grid"
    if is_grid and section.count is not None:
        raise Problem((*at, "count"), "a grid takes all its points; leave the count out")
    if not is_grid and section.count is None:
        raise Problem((*at, "count"), f"is missing; {section.sample} needs to know how many points")
    if not is_grid and not section.vary:
        raise Problem((*at, "vary"), f"is missing; {section.sample} needs at least one number that varies")
    choice = Choice(
        family=family.name,
        sample=section.sample,
        axes=[_axis(family, name, stated, (*at, "vary", name), is_grid) for name, stated in section.vary.items()],
        fixed={name: _fixed(family, name, value, (*at, "fix", name)) for name, value in section.fix.items()},
        count=section.count or 0,
    )
    _check_choice(choice, section, at)
    return choice


def _check_choice(choice: Choice, section: WorkloadSection, at: Location) -> None:
    for name in section.vary.keys() & section.fix.keys():
        raise Problem((*at, "vary", name), "cannot vary, since it is also under fix")
    if choice.sample == "grid" and choice.grid_size > MAX_POINTS:
        raise Problem((*at, "vary"), f"this grid has {choice.grid_size:,} points, more than {MAX_POINTS:,}")


def _family(section: WorkloadSection, at: Location) -> Family:
    try:
        return find_family(section.family)
    except NotFound as error:
        raise _problem((*at, "family"), error) from error


def _fixed(family: Family, name: str, value: object, at: Location) -> Value:
    number = _number(family, name, at)
    if isinstance(value, list | dict):
        raise Problem(at, "must be one value; what has several belongs under vary")
    try:
        return number.check(value)
    except UsageError as error:
        raise _problem(at, error) from error


def _axis(family: Family, name: str, stated: object, at: Location, is_grid: bool) -> Axis:
    number = _number(family, name, at)
    try:
        axis = _stated_axis(number, stated)
    except UsageError as error:
        raise _problem(at, error) from error
    if is_grid and not axis.values:
        example = f"{{from: {axis.low}, to: {axis.high}, steps: 4}}"
        raise Problem(at, f"a grid needs to know where in a range; list values, or write {example}")
    return axis


def _stated_axis(number: Number, stated: object) -> Axis:
    if isinstance(stated, dict):
        return _mapped_axis(number, stated)
    if not isinstance(stated, list):
        raise UsageError(f"must be a list, not {stated!r:.40}; what has one value belongs under fix")
    if len(stated) == 2 and not number.choices:
        return axis_of_range(number, *stated)
    return axis_of_values(number, stated)


def _mapped_axis(number: Number, stated: dict[str, object]) -> Axis:
    values, names = stated.get("values"), stated.keys()
    if isinstance(values, list) and names == {"values"}:
        return axis_of_values(number, values)
    if names != {"from", "to"} and names != {"from", "to", "steps"}:
        raise UsageError("must have `values: [...]`, or `from`, `to` and perhaps `steps`, and nothing else")
    axis = axis_of_range(number, stated["from"], stated["to"])
    return in_steps(axis, stated["steps"]) if "steps" in stated else axis


def _number(family: Family, name: str, at: Location) -> Number:
    known: Mapping[str, Number] = {number.name: number for number in (*family.numbers, *_conditions(family))}
    if name in known:
        return known[name]
    if name == "memory_format":
        raise Problem(at, f"{family.name} takes no images, and only they have a memory format")
    meant = nearest(name, known)
    raise Problem(
        at,
        f"{family.name} has no such number; " + (f"did you mean {meant}?" if meant else f"it has {', '.join(known)}"),
    )


def _conditions(family: Family) -> tuple[Number, ...]:
    return tuple(c for c in CONDITIONS if family.takes_images or c.name != "memory_format")


def _refuse_idle(section: WorkloadSection, found: tuple[Point, ...], at: Location) -> None:
    """A number that no point has was surely meant to matter: filters of a layer that is not there."""
    used = {name for point in found for name in point.structure}
    used |= {condition.name for condition in CONDITIONS}
    if all(point.mode == "inference" for point in found):
        used.remove("optimizer")
    for where, stated in (("vary", section.vary), ("fix", section.fix)):
        for name in stated:
            if name not in used:
                raise Problem((*at, where, name), "makes no difference to any point of this entry; leave it out")


def _problem(at: Location, error: UsageError | NotFound) -> Problem:
    return Problem(at, f"{error.message}; {error.hint}" if error.hint else error.message)
