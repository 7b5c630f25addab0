"""Rigs of the engines' tests and networks of the splits' serve here as well."""

import sys
from pathlib import Path

import pytest
import torch

sys.path += [str(Path(__file__).parents[1] / room) for room in ("engines", "split")]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_STATE", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)
