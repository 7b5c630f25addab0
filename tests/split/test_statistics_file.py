"""The file of statistics is read back as it was written, and wrong ones get one clear sentence."""

from pathlib import Path

import pytest

from tonnage.errors import InvalidFile
from tonnage.split.observations import LinkStatistics, PlaceStatistics, Spread, Statistics
from tonnage.split.statistics_file import read_statistics, statistics_text

HEAD = "version: 1\ntaken_at: 2026-11-16T10:00:00Z\nvalid_seconds: 60\n"
TAKEN = 1794823200.0


def written(folder: Path, text: str) -> Path:
    path = folder / "statistics.yaml"
    path.write_text(text)
    return path


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    spread = Spread(median=5e-5, p95=7e-05)
    place = PlaceStatistics(place="a/gpu0", taken_at=TAKEN, valid_seconds=9, load=1e-7, available_bytes=7, speed=None)
    link = LinkStatistics(source="a", target="b", taken_at=TAKEN, valid_seconds=9, latency_seconds=spread)
    lost = PlaceStatistics(place="b", taken_at=TAKEN, valid_seconds=9, is_lost=True)
    statistics = Statistics(places=(place, lost), links=(link,))
    assert read_statistics(written(tmp_path, statistics_text(statistics))) == statistics


def test_time_and_validity_may_stand_at_the_top(tmp_path: Path) -> None:
    text = HEAD + "nodes:\n  - {name: a, load: 0.5}\n  - {name: b, valid_seconds: 5, taken_at: 7}\n"
    entries = read_statistics(written(tmp_path, text)).places
    assert [(entry.taken_at, entry.valid_seconds) for entry in entries] == [(TAKEN, 60), (7, 5)]


def test_the_example_of_the_documents_is_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "statistics.md"
    example = page.read_text().partition("```yaml\n")[2].partition("```")[0]
    statistics = read_statistics(written(tmp_path, example))
    assert [entry.is_lost for entry in statistics.places] == [False, False, True]
    assert [entry.name for entry in statistics.links] == ["box-0->box-1", "box-1->box-0"]


BROKEN = {
    "other_version": ("version: 2\n", ":1: version: must be 1, not 2"),
    "no_version": ("nodes: []\n", ":1: version: is missing"),
    "no_time": ("version: 1\nnodes: [{name: a}]\n", ":2: nodes[0].taken_at: is missing, here and at the top"),
    "no_validity": (
        "version: 1\ntaken_at: 5\nnodes: [{name: a}]\n",
        ":3: nodes[0].valid_seconds: is missing, here and at the top",
    ),
    "no_zone": ("version: 1\ntaken_at: 2026-11-16T10:00:00\n", ":2: taken_at: must be a time with its zone"),
    "no_time_at_all": ("version: 1\ntaken_at: yesterday\n", "not 'yesterday'"),
    "yes_as_time": ("version: 1\ntaken_at: yes\n", ":2: taken_at: must be a time with its zone"),
    "endless": ("version: 1\nvalid_seconds: .inf\n", ":2: valid_seconds: must be a number, not inf"),
    "load_in_percent": (HEAD + "nodes: [{name: a, load: 50}]\n", ":4: nodes[0].load: must be at most 1, not 50"),
    "negative_memory": (
        HEAD + "nodes: [{name: a, available_bytes: -1}]\n",
        ":4: nodes[0].available_bytes: must be at least 0, not -1",
    ),
    "zero_speed": (
        HEAD + "nodes: [{name: a, speed: {median: 0, p95: 0}}]\n",
        ":4: nodes[0].speed.median: must be more than 0, not 0",
    ),
    "better_than_the_median": (
        HEAD + "nodes: [{name: a, speed: {median: 1, p95: 2}}]\n",
        ":4: nodes[0].speed.p95: is more than the median",
    ),
    "shorter_than_the_median": (
        HEAD + "links: [{from: a, to: b, latency_seconds: {median: 2, p95: 1}}]\n",
        ":4: links[0].latency_seconds.p95: is less than the median",
    ),
    "to_itself": (HEAD + "links: [{from: a, to: a}]\n", ":4: links[0].to: 'a' is where it comes from"),
    "misspelt": (
        HEAD + "nodes: [{name: a, lod: 1}]\n",
        "nodes[0].lod: there is no such field here; did you mean load?",
    ),
    "no_list": (HEAD + "nodes: {a: 1}\n", ":4: nodes: must be a list"),
    "empty": ("", "the file is empty"),
}


@pytest.mark.parametrize(("text", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_gets_a_sentence_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        read_statistics(written(tmp_path, text))
    assert sentence in caught.value.message
