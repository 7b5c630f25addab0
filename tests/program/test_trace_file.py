"""Traces on disk: what was written comes back, and nothing else is ever taken for a trace."""

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import InvalidFile, NotFound, TonnageError, UsageError
from tonnage.program.trace import Category, Operator, Origin, Phase, TensorSpec, Trace
from tonnage.program.trace_file import dump_trace, load_trace, read_trace, write_trace
from tonnage.program.virtual_gpu.recorder import Recorder


def small_trace() -> Trace:
    """Two blocks, two calls, one step."""
    recorder = Recorder()
    layer = recorder.module("Net.layer")
    recorder.operators.append(
        Operator(
            "aten::addmm",
            (
                TensorSpec((8,), "float32"),
                TensorSpec((4, 8), "float32", "strided", (1, 4)),
                TensorSpec((8, 8), "float32"),
                None,
            ),
            (TensorSpec((4, 8), "float32"),),
            {"beta": 1, "alpha": 0.5, "name": "x", "dim": (0, 1), "keep": True, "none": None},
        )
    )
    weight = recorder.allocate(1024, 0, Phase.SETUP)
    recorder.tag(weight, Category.PARAMETERS)
    recorder.call(0, layer, Phase.FORWARD)
    result = recorder.allocate(512, layer, Phase.FORWARD)
    recorder.call(0, layer, Phase.BACKWARD)
    recorder.free(result)
    recorder.end_step()
    return recorder.trace(Origin(program="train.py --size 8", steps=1, batch=4, warnings=("a word", "another")))


CONTENT = dump_trace(small_trace())


def members(content: bytes = CONTENT) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def with_column(name: str, values: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(values))
    return archive_of({**members(), f"{name}.npy": buffer.getvalue()})


def with_header(change: Callable[[dict[str, Any]], None]) -> bytes:
    header = json.loads(members()["trace.json"])
    change(header)
    return archive_of({**members(), "trace.json": json.dumps(header).encode()})


def is_refused(content: bytes) -> str:
    with pytest.raises(InvalidFile) as error:
        load_trace(content, "some.trace")
    assert "\n" not in error.value.message
    return error.value.message


# -- there and back -------------------------------------------------------------------------------------------------------


def test_a_trace_comes_back_as_it_was() -> None:
    trace, again = small_trace(), load_trace(CONTENT)
    assert again.origin == trace.origin
    assert again.operators == trace.operators
    assert [o.attributes for o in again.operators] == [o.attributes for o in trace.operators]
    assert again.modules == trace.modules
    assert again.event_subject.tolist() == trace.event_subject.tolist()
    assert again.block_category.dtype == np.int8


def test_what_comes_back_is_written_as_the_same_bytes() -> None:
    assert dump_trace(load_trace(CONTENT)) == CONTENT


def test_equal_traces_are_equal_bytes() -> None:
    assert dump_trace(small_trace()) == CONTENT


def test_an_empty_trace_comes_back() -> None:
    empty = Recorder().trace(Origin(program="nothing.py"))
    assert dump_trace(load_trace(dump_trace(empty))) == dump_trace(empty)


def test_a_written_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    write_trace(small_trace(), path)
    assert dump_trace(read_trace(path)) == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["run.trace"]


def test_a_file_that_cannot_be_written_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_trace(small_trace(), tmp_path / "missing" / "run.trace")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    path.write_bytes(CONTENT)
    broken = replace(small_trace(), modules=(object(),))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        write_trace(broken, path)
    assert path.read_bytes() == CONTENT


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    path.write_bytes(CONTENT)
    program = f"""
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("there is no torch")
sys.meta_path.insert(0, NoTorch())
from tonnage.api import estimate
report = estimate({str(path)!r}, gpus=["H200"])
assert "torch" not in sys.modules
print(report.estimates[0].fits)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


# -- what is no trace -----------------------------------------------------------------------------------------------------


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_trace(tmp_path / "missing.trace")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile):
        read_trace(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a trace at all", b"\x00" * 100, b"import torch\n" * 50])
def test_something_else_is_refused(content: bytes) -> None:
    assert is_refused(content) == "some.trace is not a readable trace: the file is damaged or is something else"


def test_a_zip_of_something_else_is_refused() -> None:
    is_refused(archive_of({"readme.txt": b"hello"}))


@pytest.mark.parametrize("share", [i / 40 for i in range(40)])
def test_a_truncated_file_is_refused(share: float) -> None:
    is_refused(CONTENT[: int(len(CONTENT) * share)])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    damaged = bytearray(CONTENT)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(CONTENT) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        load_trace(bytes(damaged))
    except TonnageError:
        return


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_inside_the_archive_is_refused_or_harmless(data: st.DataObject) -> None:
    files = members()
    name = data.draw(st.sampled_from(sorted(files)))
    damaged = bytearray(files[name])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        load_trace(archive_of({**files, name: bytes(damaged)}))
    except TonnageError:
        return


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(field=st.sampled_from(["format", "version", "origin", "modules", "operators"]), value=_JSON)
def test_any_json_in_the_header_is_refused_or_harmless(field: str, value: Any) -> None:
    try:
        load_trace(with_header(lambda header: header.update({field: value})))
    except TonnageError:
        return


@settings(max_examples=200, deadline=None)
@given(
    field=st.sampled_from(["steps", "batch", "program", "storage_bytes", "warnings", "allocator_settings"]), value=_JSON
)
def test_an_origin_of_wrong_types_is_refused(field: str, value: Any) -> None:
    try:
        trace = load_trace(with_header(lambda header: header["origin"].update({field: value})))
    except TonnageError:
        return
    assert type(getattr(trace.origin, field)) is type(getattr(small_trace().origin, field)) or value is None


def test_a_trace_of_a_newer_tonnage_asks_for_an_upgrade() -> None:
    with pytest.raises(InvalidFile, match=r"newer Tonnage \(trace version 3, this one reads up to 2\)") as error:
        load_trace(with_header(lambda header: header.update(version=3)))
    assert "upgrade" in error.value.hint


def test_a_trace_of_the_first_version_has_no_views_and_no_modules_entered() -> None:
    old = {
        name: content
        for name, content in members(with_header(lambda header: header.update(version=1))).items()
        if not name.startswith(("call_views", "call_entered", "call_host"))
    }
    trace = load_trace(archive_of(old))
    assert trace.call_views.tolist() == trace.call_entered.tolist() == [0] * len(trace.call_operator)


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5, [1]])
def test_a_version_that_is_none_is_refused(version: Any) -> None:
    is_refused(with_header(lambda header: header.update(version=version)))


def test_fields_of_the_future_are_ignored() -> None:
    trace = load_trace(with_header(lambda header: header["origin"].update(weather="fine")))
    assert trace.origin == small_trace().origin


@pytest.mark.parametrize("missing", sorted(members()))
def test_a_missing_member_is_refused(missing: str) -> None:
    is_refused(archive_of({name: content for name, content in members().items() if name != missing}))


# -- columns --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("block_bytes", np.array([1024, 512], dtype=np.int32)),
        ("block_bytes", np.array([1024.0, 512.0])),
        ("block_bytes", np.array([[1024, 512]])),
        ("event_kind", np.array([0, 2, 0, 2, 1, 3])),
        ("block_bytes", np.array(["a", "b"])),
        ("block_bytes", np.array([1024, 512], dtype=">i8")),
    ],
)
def test_a_column_of_another_type_is_refused(column: str, values: Any) -> None:
    assert "wrong type" in is_refused(with_column(column, values))


def test_a_pickle_is_never_loaded() -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([print, "harm"], dtype=object), allow_pickle=True)
    is_refused(archive_of({**members(), "block_bytes.npy": buffer.getvalue()}))


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("event_kind", np.array([0, 2, 0, 2, 1, 6], np.int8), "an event's kind"),
        ("event_kind", np.array([0, 2, 0, 2, 1, -1], np.int8), "an event's kind"),
        ("block_category", np.array([0, 8], np.int8), "a block's category"),
        ("call_phase", np.array([1, 5], np.int8), "a call's phase"),
        ("call_operator", np.array([0, 1], np.int32), "a call's operator"),
        ("call_operator", np.array([0, -1], np.int32), "a call's operator"),
        ("call_module", np.array([1, 2], np.int32), "a module"),
        ("block_module", np.array([0, 2], np.int32), "a module"),
        ("block_bytes", np.array([1024, -512], np.int64), "negative size"),
        ("call_entered", np.array([1, -1], np.int32), "a count is negative"),
        ("event_subject", np.array([0, 2, 1, 1, 1, 0], np.int32), "an event's call"),
        ("event_subject", np.array([0, 0, 2, 1, 1, 0], np.int32), "an allocated block"),
        ("event_subject", np.array([0, 0, 1, 1, 2, 0], np.int32), "a freed block"),
        ("event_subject", np.array([0, 0, 1, 1, -1, 0], np.int32), "a freed block"),
    ],
)
def test_an_index_out_of_range_is_refused(column: str, values: Any, reason: str) -> None:
    assert reason in is_refused(with_column(column, values))


@pytest.mark.parametrize(
    "column",
    ["block_module", "block_category", "block_call", "call_phase", "call_module", "call_views", "event_subject"],
)
def test_columns_of_different_length_are_refused(column: str) -> None:
    old = getattr(small_trace(), column)
    is_refused(with_column(column, old[:-1]))
    is_refused(with_column(column, np.append(old, old[:1])))


@pytest.mark.parametrize("call", [-1, 3, 1_000_000])
def test_a_block_of_an_impossible_call_is_refused(call: int) -> None:
    is_refused(with_column("block_call", np.array([0, call], np.int32)))


def test_a_block_that_is_allocated_at_the_very_end_may_have_no_call() -> None:
    load_trace(with_column("block_call", np.array([0, 2], np.int32)))


def with_events(*events: tuple[int, int]) -> bytes:
    kinds, subjects = zip(*events, strict=True)
    content = members()
    for name, values in (("event_kind", np.array(kinds, np.int8)), ("event_subject", np.array(subjects, np.int32))):
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, values)
        content[f"{name}.npy"] = buffer.getvalue()
    return archive_of(content)


@pytest.mark.parametrize(
    "events",
    [
        ((0, 0), (0, 1), (1, 1), (1, 1)),  # freed twice
        ((0, 0), (0, 1), (0, 1)),  # allocated twice
        ((0, 0), (1, 1), (0, 1)),  # freed before it exists
        ((0, 0),),  # a block that was never allocated
    ],
)
def test_impossible_lives_of_a_block_are_refused(events: tuple[tuple[int, int], ...]) -> None:
    assert "twice" in is_refused(with_events(*events))


# -- what a stranger may send ---------------------------------------------------------------------------------------------


def test_a_member_that_declares_a_huge_size_is_refused() -> None:
    content = bytearray(CONTENT)
    directory = content.rindex(b"PK\x01\x02")  # the last entry of the directory
    content[directory + 24 : directory + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    assert "too large" in is_refused(bytes(content))


def test_an_array_that_declares_a_huge_shape_is_refused() -> None:
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1099511627776,), }"
    padded = header + b" " * (117 - len(header)) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded
    is_refused(archive_of({**members(), "block_bytes.npy": array}))


def test_a_shape_with_a_negative_or_broken_size_is_refused() -> None:
    for size in (-1, 1.5, "8", None, [8]):

        def change(header: dict[str, Any], size: Any = size) -> None:
            header["operators"][0][1][0][0] = [size]

        is_refused(with_header(change))


def test_deep_nesting_is_refused() -> None:
    nested = b'{"format":"tonnage-trace","version":1,"origin":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    is_refused(archive_of({**members(), "trace.json": nested}))
