"""Events are read one by one, whatever the size of the file; what is cut off says how far it goes."""

import gzip
import json
from pathlib import Path

import pytest

from tonnage.errors import InvalidFile, NotFound
from tonnage.profile import json_stream
from tonnage.profile.json_stream import TraceFile

EVENTS = [{"ph": "X", "name": f"ä{number}", "ts": number, "args": {"text": '}],"'}} for number in range(50)]


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture(params=[1 << 21, 7, 64], ids=lambda size: f"{size} bytes at a time")
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", request.param)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_every_event_is_read(tmp_path: Path, name: str, indent: int | None) -> None:
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "x"}, indent=indent)
    file = TraceFile(write(tmp_path / name, text))
    assert list(file.events()) == EVENTS
    assert file.header == {"schemaVersion": 1}


@pytest.mark.usefixtures("_chunks")
def test_an_array_alone_is_a_trace_too(tmp_path: Path) -> None:
    assert list(TraceFile(write(tmp_path / "t.json", json.dumps(EVENTS))).events()) == EVENTS


def test_an_array_may_lack_its_last_bracket(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", json.dumps(EVENTS).removesuffix("]") + ",\n")
    assert list(TraceFile(path).events()) == EVENTS


@pytest.mark.usefixtures("_chunks")
def test_a_truncated_trace_says_how_much_could_be_read(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": EVENTS})
    path = write(tmp_path / "t.json", text[: text.index('"ts": 49')])
    with pytest.raises(InvalidFile, match=r"cut off: 49 events in .* could be read"):
        list(TraceFile(path).events())


def test_a_truncated_archive_says_how_much_could_be_read(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps({"traceEvents": EVENTS * 2000}).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InvalidFile, match=r"cut off: [\d,]+ events"):
        list(TraceFile(path).events())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("hello", "not JSON"),
        ('{"a": 1}', "no traceEvents"),
        ('{"a": 1', "cut off: 0 events"),
        ('{"traceEvents": [', "cut off: 0 events"),
        ("[", "cut off: 0 events"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidFile, match=reason):
        list(TraceFile(write(tmp_path / "t.json", text)).events())


def test_damage_in_the_middle_is_found_without_reading_on(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": EVENTS + EVENTS * 9}).replace('"ts": 25', '"ts": ?')
    with pytest.raises(InvalidFile, match="damaged behind event 25"):
        list(TraceFile(write(tmp_path / "t.json", text)).events())


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(TraceFile(tmp_path / "none.json").events())
