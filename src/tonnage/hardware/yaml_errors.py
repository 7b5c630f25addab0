"""What is wrong in a file written by users, as one sentence with file, line and field."""

from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tonnage.errors import InvalidFile
from tonnage.hardware.catalogue import nearest
from tonnage.hardware.yaml_lines import Location, format_location


class Located(Protocol):
    """The content of a file whose fields have lines."""

    def line(self, location: Location) -> int: ...

    def error(self, location: Location, text: str, hint: str = "") -> InvalidFile: ...


class Problem(Exception):
    """Something a field says that cannot be; the reader adds file and line."""

    def __init__(self, location: Location, text: str) -> None:
        super().__init__(text)
        self.location, self.text = tuple(location), text


def invalid_file(document: Located, error: ValidationError, sections: Sequence[type[BaseModel]]) -> InvalidFile:
    """One error for all that pydantic found wrong. `sections` are the models whose fields the user may have meant.

    The first problem in the order of the file is the message; the hint names the others.
    """
    problems = sorted(error.errors(), key=lambda details: document.line(details["loc"]))
    first, others = problems[0], problems[1:]
    fields = ", ".join(f"{format_location(other['loc'])} (line {document.line(other['loc'])})" for other in others[:5])
    hint = f"more to correct: {fields}{', ...' if len(others) > 5 else ''}" if others else ""
    return document.error(first["loc"], _describe(first, sections), hint)


def _describe(details: ErrorDetails, sections: Sequence[type[BaseModel]]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    given = f"{details['input']!r:.40}"
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return _unknown_field(str(details["loc"][-1]), sections)
        case "string_type":
            return f"must be text, not {given}; put it in quotes"
        case "int_type" | "int_from_float" | "int_parsing" | "int_parsing_size":
            return f"must be a whole number, not {given}"
        case "float_type" | "finite_number":
            return f"must be a number, not {given}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {given}"
        case "literal_error":
            return f"must be {context['expected']}, not {given}"
        case "list_type":
            return f"must be a list, not {given}"
        case "model_type" | "dict_type":
            return f"must be a mapping (lines of `name: value`), not {given}"
        case "too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return f"must be made of letters, digits, dots, dashes and underscores, not {given}"
        case _:
            return _limit(kind, context, given) or details["msg"].removeprefix("Value error, ")


def _limit(kind: str, context: dict[str, Any], given: str) -> str | None:
    words = {"greater_than_equal": "at least", "greater_than": "more than", "less_than_equal": "at most"}
    limits = [value for key, value in context.items() if key in ("ge", "gt", "le")]
    return f"must be {words[kind]} {limits[0]}, not {given}" if kind in words and limits else None


def _unknown_field(name: str, sections: Sequence[type[BaseModel]]) -> str:
    known = {field for section in sections for field in section.model_fields}
    meant = nearest(name, known - {name})
    return "there is no such field here" + (f"; did you mean {meant}?" if meant else "")
