"""The simulation against histories that PyTorch wrote on an H200; no GPU is needed to replay them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "allocator"


def load_checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_snapshot", FOLDER / "check_snapshot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checker = load_checker()


@pytest.mark.parametrize("name", ["convolutions", "convolutions-expandable", "tight"])
def test_every_block_segment_error_and_peak_is_that_of_the_gpu(name: str) -> None:
    recording = checker.load(checker.HISTORIES / f"{name}.json.gz")
    found = checker.compare(recording, "recorded")
    assert found.blocks > 900
    assert checker.differences(recording, found) == []


def test_the_rule_for_addresses_places_every_segment_as_the_driver_did() -> None:
    recording = checker.load(checker.HISTORIES / "tight.json.gz")
    found = checker.compare(recording, "own")
    assert (found.placed_alike, found.segments_taken) == (84, 84)
    assert checker.differences(recording, found) == []
