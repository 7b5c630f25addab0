"""Which labels were deployed: ids with their expiry, since an expired label is refused for that alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from platformdirs import user_data_path

from tonnage.configure.label import Label
from tonnage.configure.refusals import Replayed
from tonnage.configure.signing import CLOCK_SECONDS
from tonnage.errors import InvalidFile
from tonnage.service.locked_file import replaced

VARIABLE = "TONNAGE_SEEN_LABELS"
_ID = re.compile(r"[0-9a-f]{32}")


class SeenLabels:
    """A file that processes share: of two that claim one label, one gets it."""

    def __init__(self, path: Path | None = None) -> None:
        named = os.environ.get(VARIABLE)
        self.path = path or (Path(named) if named else user_data_path("tonnage") / "seen-labels.json")

    def ids(self) -> set[str]:
        try:
            return set(self._parse(self.path.read_bytes()))
        except FileNotFoundError:
            return set()

    def claim(self, label: Label, now: float) -> None:
        """Raises `Replayed` where the label was claimed before."""
        with replaced(self.path) as file:
            seen = self._parse(file.content)
            if label.id in seen:
                raise Replayed("the label was deployed already", "ask for a new one: tonnage configure")
            kept = {name: expiry for name, expiry in seen.items() if expiry + CLOCK_SECONDS > now}
            file.content = json.dumps(kept | {label.id: label.expires_at}).encode()

    def release(self, label: Label) -> None:
        """After a deployment that did not come about; may be repeated."""
        with replaced(self.path) as file:
            seen = self._parse(file.content)
            seen.pop(label.id, None)
            file.content = json.dumps(seen).encode()

    def _parse(self, content: bytes | None) -> dict[str, int]:
        """A damaged file, or one that was cut off, is no missing one: taking it for that would let every label in again."""
        try:
            seen = {} if content is None else json.loads(content)
        except (ValueError, RecursionError):
            seen = None
        if not isinstance(seen, dict) or not all(_ID.fullmatch(k) and type(v) is int for k, v in seen.items()):
            raise InvalidFile(
                f"{self.path}, which holds the labels that were deployed, is damaged",
                "remove it once every label that it may have held has expired",
            )
        return seen
