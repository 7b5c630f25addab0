"""What to do about a folder of models that changes by itself. No clock and no models: pure decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tonnage.serve.repository import ModelFolder


@dataclass(slots=True)
class Poller:
    """Looks at the folder again and again. What is still being copied differs from one look to the next and waits; what
    was tried already, with success or without, waits until it changes."""

    _before: Mapping[str, ModelFolder] = field(default_factory=dict)

    def changes(
        self, folders: Mapping[str, ModelFolder], tried: Mapping[str, ModelFolder | None]
    ) -> tuple[list[str], list[str]]:
        """Names to load and names to unload, from what is there now and what was there when each model was tried."""
        settled = [name for name, folder in folders.items() if self._before.get(name) == folder]
        self._before = dict(folders)
        changed = [name for name in settled if tried.get(name) != folders[name]]
        return changed, [name for name in tried if name not in folders]
