"""The wire format: the forms that Caffe wrote over the years, and files that are none."""

from pathlib import Path

import numpy as np
import pytest
from caffe_files import blob, caffemodel, field, varint

from tonnage.errors import InvalidFile, NotFound
from tonnage.program.caffe.weights import read_weights
from tonnage.program.caffe.wire_format import parse_wire

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3) / 3


def saved(folder: Path, content: bytes) -> Path:
    path = folder / "net.caffemodel"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("version", [2, 1, 0])
@pytest.mark.parametrize("form", ["new", "old", "unpacked", "double"])
def test_weights_are_read_from_every_form(tmp_path: Path, form: str, version: int) -> None:
    stored = read_weights(saved(tmp_path, caffemodel({"conv": [ARRAY, ARRAY[0]]}, form, version)))

    first, second = stored["conv"]
    assert first.shape == ((1, 1, 2, 3) if form == "old" else (2, 3))
    np.testing.assert_allclose(np.concatenate(first.values), ARRAY.reshape(-1))
    assert second.count == 3


def test_packed_numbers_are_views_of_the_file(tmp_path: Path) -> None:
    values = read_weights(saved(tmp_path, caffemodel({"conv": [ARRAY]})))["conv"][0].values[0]

    assert not values.flags.owndata
    assert not values.flags.writeable


def test_numbers_in_several_pieces_are_all_there(tmp_path: Path) -> None:
    pieces = blob(ARRAY) + field(5, ARRAY.tobytes()) + blob(ARRAY[0], "unpacked")[5:]
    stored = read_weights(saved(tmp_path, field(100, field(1, "a") + field(7, pieces))))

    assert stored["a"][0].count == 15


def test_negative_numbers_and_unknown_fields_are_read() -> None:
    reshape = field(133, field(1, field(1, varint(0) + varint(-1))) + field(2, 1) + field(77, "unknown"))
    net = parse_wire(memoryview(field(100, reshape) + varint(9 << 3 | 1) + bytes(8)), "NetParameter", "f")

    assert net.all("layer")[0].part("reshape_param").part("shape").all("dim") == [0, -1]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a zip file", "is no caffemodel, or a damaged one"),
        (caffemodel({"a": [ARRAY]})[:-3], "is only a part of a caffemodel"),
        (b"\xff" * 20, "is only a part of a caffemodel"),
        (field(1, "net"), "holds no weights"),
        (field(100, field(7, field(5, b"12345"))), "data ends in the middle of a number"),
        (field(100, field(7, 5)), "blobs is not what it should be"),
        (field(100, field(121, field(1, 9))), "pool is 9"),
        (field(1, "x" * (2 << 20)), "longer than a name can be"),
    ],
)
def test_files_that_are_no_caffemodels_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(InvalidFile) as refused:
        read_weights(path)

    assert refused.value.message.startswith(f"{path} ")
    assert told in refused.value.message


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        read_weights(tmp_path / "none.caffemodel")


def test_too_many_fields_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.program.caffe.wire_format.MOST_FIELDS", 100)

    with pytest.raises(InvalidFile, match="more than 100 fields"):
        parse_wire(memoryview(field(3, "") * 101), "NetParameter", "f")
