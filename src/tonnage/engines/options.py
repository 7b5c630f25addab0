"""An engine's own options from text: `-o namespace=ml -o dra=true`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, fields

from tonnage.engines.base import EngineOptions
from tonnage.errors import UsageError

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_options(kind: type[EngineOptions], pairs: Iterable[str]) -> EngineOptions:
    """Options of that kind; raises `UsageError` that names those it has."""
    known = {field.name: field for field in fields(kind)}
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(
                f"--option {pair} is no option of this engine", f"its options are: {listed}; write --option NAME=VALUE"
            )
        values[name] = _convert(known[name], text)
    return kind(**values)


def _convert(field: Field[object], text: str) -> object:
    kind = type(field.default)
    try:
        return _TRUTH[text.lower()] if kind is bool else kind(text)  # type: ignore[call-arg]  # int, float or str
    except (KeyError, ValueError):
        raise UsageError(f"--option {field.name}={text}: {text!r} is not {_ARTICLES.get(kind, 'valid')}") from None


_ARTICLES: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}
