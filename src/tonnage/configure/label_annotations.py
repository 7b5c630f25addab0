"""Labels as OCI annotations: one for each value, so that people and admission controllers can read them on a container."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tonnage.configure import label_json
from tonnage.configure.label import SignedLabel
from tonnage.configure.refusals import MalformedLabel

PREFIX = "io.tonnage.label."
SIGNATURE = PREFIX + "signature"


def to_annotations(signed: SignedLabel) -> dict[str, str]:
    """Names are paths in the label (`io.tonnage.label.hardware.gpu`), values its JSON, text without quotes."""
    found = dict(_flat(PREFIX, asdict(signed.label)))
    return {name: found[name] for name in sorted(found)} | {SIGNATURE: signed.signature}


def from_annotations(annotations: Mapping[str, str]) -> SignedLabel:
    """Raises `MalformedLabel`. Other annotations may stand beside; under our prefix nothing else may."""
    own = {name: value for name, value in annotations.items() if name.startswith(PREFIX)}
    if not own:
        raise MalformedLabel("there is no label among the annotations")
    plain: dict[str, Any] = {}
    for name, text in own.items():
        _put(plain, name, text)
    signature = plain.pop("signature", None)
    signed = label_json.load(_rewritten({"label": plain, "signature": signature}))
    if to_annotations(signed) != own:
        raise MalformedLabel("the annotations are not those that the label is written as")
    return signed


def _flat(prefix: str, value: dict[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, part in value.items():
        if isinstance(part, dict):
            found += _flat(f"{prefix}{name}.", part)
        else:
            found.append((prefix + name, part if isinstance(part, str) else json.dumps(part)))
    return found


_TEXTS = frozenset(
    "format id server program_digest rules_version signature hardware.node_type hardware.gpu hardware.communication "
    "image.reference".split()
)


def _put(plain: dict[str, Any], name: str, text: str) -> None:
    path = name.removeprefix(PREFIX)
    *folders, last = path.split(".")
    at = plain
    for folder in folders:
        at = at.setdefault(folder, {})
        if not isinstance(at, dict):
            raise MalformedLabel(f"the annotation {name[:120]!r} stands below a value")
    at[last] = text if path in _TEXTS or _is_digest(path, text) else _number(name, text)


def _is_digest(path: str, text: str) -> bool:
    return path == "image.digest" and text != "null"


def _number(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedLabel(f"the annotation {name[:120]!r} is {text[:80]!r}") from None


def _rewritten(plain: dict[str, Any]) -> bytes:
    try:
        return label_json.canonical(plain)
    except (ValueError, RecursionError):
        raise MalformedLabel("the annotations hold what no label holds") from None
