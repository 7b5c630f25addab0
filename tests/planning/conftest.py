"""Rigs and problems of neighbouring tests serve here as well."""

import sys
from pathlib import Path

import pytest

for neighbour in ("engines", "allocate"):
    sys.path.append(str(Path(__file__).parents[1] / neighbour))


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_STATE", str(tmp_path / "state"))
