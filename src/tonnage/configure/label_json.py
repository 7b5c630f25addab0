"""Labels as JSON, strictly: one label has one text, and whatever is not exactly that text is refused.

Canonical means: keys sorted, no spaces, ASCII only, numbers as Python writes them. A text is canonical if writing again
what was read from it gives the same bytes, which leaves no room for a second spelling of the same label.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from tonnage.configure.label import FORMAT, MOST_BYTES, Label, SignedLabel
from tonnage.configure.refusals import MalformedLabel

Value = TypeVar("Value")


def canonical(value: object) -> bytes:
    """Equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def signed_bytes(label: Label) -> bytes:
    """What the signature is of. The format goes first, so that nothing else the key may ever sign looks like a label."""
    return FORMAT.encode() + b"\n" + canonical(asdict(label))


def dump(signed: SignedLabel) -> bytes:
    """The content of label.json."""
    return canonical(asdict(signed))


def load(content: bytes) -> SignedLabel:
    """Raises `MalformedLabel` with what is wrong; the signature is still to be verified."""
    if len(content) > MOST_BYTES:
        raise MalformedLabel(f"{len(content):,} bytes are too many for a label")
    signed = from_plain(SignedLabel, _parse(content), "")
    signed.check()
    if dump(signed) != content:
        raise MalformedLabel(
            "the label is not in its canonical form: spaces, the order of keys or the spelling of a value were changed",
            "deploy the file as `tonnage configure` has written it",
        )
    return signed


def _parse(content: bytes) -> object:
    try:
        return json.loads(content.decode("ascii"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise MalformedLabel("the label is not ASCII text") from None
    except RecursionError:
        raise MalformedLabel("the label is nested too deep") from None
    except ValueError as error:
        raise MalformedLabel(f"the label is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def from_plain(kind: type[Value], plain: object, at: str) -> Value:
    """A dataclass from what JSON gave: exactly its fields, each of exactly its type."""
    place = at or "it"
    if not isinstance(plain, Mapping):
        raise MalformedLabel(f"the label makes no sense: {place} is not an object")
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}
    if plain.keys() != names:
        wrong = sorted(str(name) for name in plain.keys() ^ names)[0]
        raise MalformedLabel(
            f"the label {'lacks' if wrong in names else 'has an unknown field'} {wrong[:80]!r} in {place}"
        )
    values = {name: _checked(hints[name], plain[name], f"{at}.{name}".lstrip(".")) for name in names}
    return kind(**values)


def _checked(hint: Any, value: object, at: str) -> object:
    if is_dataclass(hint) and isinstance(hint, type):
        return from_plain(hint, value, at)
    if not _is_of(hint, value):
        raise MalformedLabel(f"the label has {at} = {value!r:.80}")
    return value


def _is_of(hint: Any, value: object) -> bool:
    if isinstance(hint, UnionType):
        return any(_is_of(part, value) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint is NoneType or hint is None:
        return value is None
    if hint is float:  # Python reads 1e999 as infinity without a word
        return type(value) is float and math.isfinite(value)
    return type(value) is hint  # True is no 1
