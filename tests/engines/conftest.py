"""What all tests of engines have: a state of their own, and Podman where they ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from podman_rig import fake_gpus, image, podman

__all__ = ["fake_gpus", "image", "podman"]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_STATE", str(tmp_path / "state"))
