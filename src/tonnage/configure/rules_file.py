"""The shape of rules.yaml, and from a document that was read to `Rules`; complaints name file, line and field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tonnage.configure.configuration import Communication
from tonnage.configure.rule_fields import FIELDS
from tonnage.configure.rules import Amount, Consequence, Quality, Range, Rule, Rules
from tonnage.hardware.catalogue import nearest
from tonnage.hardware.yaml_errors import Problem, invalid_file
from tonnage.hardware.yaml_lines import Document, Location

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RangeSection(_Section):
    field: str
    at_least: _Number | None = None
    below: _Number | None = None


class AmountSection(_Section):
    """A bare number is short for `plus`."""

    field: str | None = None
    times: _Positive = 1.0
    plus: _Positive = 0.0

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        return {"plus": value} if type(value) in (int, float) else value


class ConsequenceSection(_Section):
    communication: Communication | None = None
    pcie_lanes: Annotated[int, Field(ge=1, le=32)] | None = None
    pinned_memory: bool | None = None
    loader_workers: AmountSection | None = None
    cpu_cores: AmountSection | None = None
    memory_bytes: AmountSection | None = None
    sockets: Literal["fewest", "all"] | None = None
    order: Annotated[list[Quality], Field(min_length=1)] | None = None


class RuleSection(_Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
    when: list[RangeSection]
    then: ConsequenceSection
    reason: Annotated[str, Field(min_length=1, max_length=400)]


class RulesSection(_Section):
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
    rules: Annotated[list[RuleSection], Field(min_length=1, max_length=1000)]


_SECTIONS = (RulesSection, RuleSection, RangeSection, ConsequenceSection, AmountSection)


def parse_rules(document: Document) -> Rules:
    """Raises `InvalidFile`."""
    try:
        file = RulesSection.model_validate(document.value)
        return Rules(version=file.version, rules=_rules(file))
    except ValidationError as error:
        raise invalid_file(document, error, _SECTIONS) from error
    except Problem as problem:
        raise document.error(problem.location, problem.text) from problem


def _rules(file: RulesSection) -> tuple[Rule, ...]:
    seen: set[str] = set()
    found = []
    for index, section in enumerate(file.rules):
        at: Location = ("rules", index)
        if section.name in seen:
            raise Problem((*at, "name"), f"another rule is called {section.name!r} already")
        seen.add(section.name)
        found.append(_rule(section, at))
    if not any(rule.then.order and not rule.when for rule in found):
        raise Problem(("rules",), "no rule gives an order in all cases; end with one whose `when` is []")
    return tuple(found)


def _rule(section: RuleSection, at: Location) -> Rule:
    when = tuple(_range(part, (*at, "when", place)) for place, part in enumerate(section.when))
    then = section.then
    if not then.model_dump(exclude_none=True):
        raise Problem((*at, "then"), "nothing follows from this rule")
    return Rule(
        name=section.name,
        when=when,
        reason=section.reason,
        then=Consequence(
            communication=then.communication,
            pcie_lanes=then.pcie_lanes,
            pinned_memory=then.pinned_memory,
            loader_workers=_amount(then.loader_workers, (*at, "then", "loader_workers")),
            cpu_cores=_amount(then.cpu_cores, (*at, "then", "cpu_cores")),
            memory_bytes=_amount(then.memory_bytes, (*at, "then", "memory_bytes")),
            sockets=then.sockets,
            order=tuple(then.order) if then.order else None,
        ),
    )


def _range(section: RangeSection, at: Location) -> Range:
    _check_field(section.field, (*at, "field"))
    if section.at_least is None and section.below is None:
        raise Problem(at, "says neither at_least nor below")
    if section.at_least is not None and section.below is not None and section.at_least >= section.below:
        raise Problem(at, f"nothing is at least {section.at_least:g} and below {section.below:g}")
    return Range(field=section.field, at_least=section.at_least, below=section.below)


def _amount(section: AmountSection | None, at: Location) -> Amount | None:
    if section is None:
        return None
    if section.field is not None:
        _check_field(section.field, (*at, "field"))
    return Amount(field=section.field, times=section.times, plus=section.plus)


def _check_field(name: str, at: Location) -> None:
    if name not in FIELDS:
        meant = nearest(name, FIELDS)
        raise Problem(at, f"rules know no field {name!r}" + (f"; did you mean {meant}?" if meant else ""))
