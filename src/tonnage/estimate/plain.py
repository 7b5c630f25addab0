"""Plain data from a file, checked against the types of the dataclass that it is to become."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NoReturn, get_args, get_origin, get_type_hints


def checked(plain: object, kind: Any, where: str, *, least: float = 0.0) -> Any:
    """The data as this type has it, lists as tuples. Raises ValueError with a name and what is wrong there. Numbers are
    finite and not below `least`."""
    if kind in (int, float):
        return _number(plain, kind, where, least)
    if kind is str:
        return plain if isinstance(plain, str) else _refuse(where, "text", plain)
    if get_origin(kind) is tuple:
        return _items(plain, get_args(kind), where, least)
    if not isinstance(plain, Mapping):
        _refuse(where, "an object", plain)
    if get_origin(kind) is Mapping:
        of = get_args(kind)[1]
        return plain if of is Any else {k: checked(v, of, f"{where}.{k}", least=least) for k, v in plain.items()}
    return _fields(plain, kind, where, least)


def _fields(plain: Mapping[str, object], kind: Any, where: str, least: float) -> Any:
    types = _types(kind)
    if plain.keys() != types.keys():
        odd = sorted(plain.keys() ^ types.keys())[0]
        raise ValueError(f"{where}.{odd} is {'missing' if odd in types else 'unknown'}")
    return kind(**{name: checked(plain[name], of, f"{where}.{name}", least=least) for name, of in types.items()})


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in fields(kind)}


def _number(plain: object, kind: Any, where: str, least: float) -> int | float:
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        _refuse(where, "a number", plain)
    if plain < least or (kind is int and plain != int(plain)):
        _refuse(where, f"a number of at least {least:g}" if plain < least else "a whole number", plain)
    return plain


def _items(plain: object, kinds: tuple[Any, ...], where: str, least: float) -> tuple[Any, ...]:
    if not isinstance(plain, list | tuple):
        _refuse(where, "a list", plain)
    each = [kinds[0]] * len(plain) if kinds[-1] is ... else list(kinds)
    if len(each) != len(plain):
        _refuse(where, f"a list of {len(each)}", plain)
    return tuple(checked(item, of, where, least=least) for item, of in zip(plain, each, strict=True))


def _refuse(where: str, wanted: str, found: object) -> NoReturn:
    raise ValueError(f"{where} must be {wanted}, not {found!r:.40}")
