"""Traces on disk: a zip archive of a JSON header and plain integer columns. Reading one runs no code, needs no torch."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.program.trace import Category, Event, Operator, Origin, Phase, TensorSpec, Trace

VERSION = 2
_FORMAT = "tonnage-trace"
_COLUMNS: Mapping[str, type[np.signedinteger[Any]]] = {
    "event_kind": np.int8, "event_subject": np.int32, "block_bytes": np.int64, "block_category": np.int8,
    "block_module": np.int32, "block_call": np.int32, "call_operator": np.int32, "call_phase": np.int8,
    "call_module": np.int32, "call_views": np.int32, "call_entered": np.int32,
    "call_host_operators": np.int32, "call_host_bytes": np.int64, "call_host_random": np.int64,
}  # fmt: skip
_HOST_COUNTS = ("call_views", "call_entered", "call_host_operators", "call_host_bytes", "call_host_random")
# A service reads traces of strangers: no member may unpack to more than this.
_MOST_BYTES = 1 << 30


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace; the file appears complete or not at all."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_bytes(dump_trace(trace))
        partial.replace(target)
    except OSError as error:
        raise UsageError(f"the trace cannot be written to {target}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def dump_trace(trace: Trace) -> bytes:
    """A trace as bytes; equal traces give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        _add(archive, "trace.json", json.dumps(_header(trace), separators=(",", ":")).encode())
        for name, dtype in _COLUMNS.items():
            column = np.ascontiguousarray(getattr(trace, name), dtype=dtype)
            _add(archive, f"{name}.npy", _npy(column))
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)


def _npy(column: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, column, allow_pickle=False)
    return buffer.getvalue()


def _header(trace: Trace) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": VERSION,
        "origin": asdict(trace.origin),
        "modules": trace.modules,
        "operators": [
            [op.name, [_spec(s) for s in op.inputs], [_spec(s) for s in op.outputs], dict(op.attributes)]
            for op in trace.operators
        ],
    }


def _spec(spec: TensorSpec | None) -> list[Any] | None:
    return None if spec is None else [spec.shape, spec.dtype, spec.layout, spec.strides]


def read_trace(path: str | Path) -> Trace:
    """Read a trace; raises `NotFound` or `InvalidFile`."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    return load_trace(content, str(path))


def load_trace(content: bytes, name: str = "the trace") -> Trace:
    """A trace from bytes; everything in it is checked before it is used."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            header = json.loads(_member(archive, "trace.json"))
            _check_version(header, name)
            columns = _columns(archive, header["version"])
        trace = _build(header, columns)
        _check(trace)
    except InvalidFile:
        raise
    except Exception as error:  # the decoders raise almost anything at damaged bytes; all of it means the same
        raise InvalidFile(
            f"{name} is not a readable trace: {_reason(error)}",
            "capture it again: tonnage estimate SCRIPT --save-trace FILE",
        ) from None
    return trace


def _reason(error: Exception) -> str:
    if type(error) is ValueError:
        return " ".join(str(error).split())
    return "the file is damaged or is something else"


def _check_version(header: Any, name: str) -> None:
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ValueError("it has no trace header")
    version = header.get("version")
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"its version is {version!r}")
    if version > VERSION:
        raise InvalidFile(
            f"{name} was written by a newer Tonnage (trace version {version}, this one reads up to {VERSION})",
            "upgrade Tonnage: pip install --upgrade tonnage",
        )


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _MOST_BYTES:
        raise ValueError(f"{name} is too large")
    with archive.open(name) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{name} is too large")
    return content


def _columns(archive: zipfile.ZipFile, version: int) -> dict[str, np.ndarray[Any, Any]]:
    """All columns; what the first version did not have counts as nothing."""
    known = [name for name in _COLUMNS if version > 1 or name not in _HOST_COUNTS]
    columns = {name: _column(archive, name) for name in known}
    calls = len(columns["call_operator"])
    return columns | {name: np.zeros(calls, _COLUMNS[name]) for name in _COLUMNS if name not in known}


def _column(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, Any]:
    """A column; its header is checked before anything of the declared size is allocated."""
    content = io.BytesIO(_member(archive, f"{name}.npy"))
    np.lib.format.read_magic(content)
    shape, _, dtype = np.lib.format.read_array_header_1_0(content)
    if len(shape) != 1 or dtype != _COLUMNS[name]:
        raise ValueError(f"{name} has the wrong type")
    column = np.frombuffer(content.read(), dtype)
    if len(column) != shape[0]:
        raise ValueError(f"{name} has the wrong length")
    return column


def _build(header: dict[str, Any], columns: dict[str, np.ndarray[Any, Any]]) -> Trace:
    operators = tuple(
        Operator(
            str(name),
            tuple(_read_spec(s) for s in inputs),
            tuple(spec for s in outputs if (spec := _read_spec(s)) is not None),
            {k: _frozen(v) for k, v in attributes.items()},
        )
        for name, inputs, outputs, attributes in header["operators"]
    )
    modules = tuple(map(str, header["modules"]))
    return Trace(origin=_origin(header["origin"]), operators=operators, modules=modules, **columns)


def _origin(raw: dict[str, Any]) -> Origin:
    """Fields that this version does not know are left out; those that it knows must have their type."""
    known: dict[str, Any] = {}
    for field in fields(Origin):
        if field.name not in raw:
            continue
        value = known[field.name] = _frozen(raw[field.name])
        if field.name == "batch":
            right = value is None or type(value) is int
        elif field.name == "warnings":
            right = isinstance(value, tuple) and all(isinstance(warning, str) for warning in value)
        else:
            right = type(value) is (str if field.name == "program" else type(field.default))
        if not right:
            raise ValueError(f"its {field.name} is {value!r:.40}")
    return Origin(**known)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _read_spec(raw: Any) -> TensorSpec | None:
    if raw is None:
        return None
    shape, dtype, layout, strides = raw
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"a shape is {shape!r}")
    return TensorSpec(tuple(shape), str(dtype), str(layout), tuple(int(s) for s in strides))


def _check(trace: Trace) -> None:
    """Every index must point at something, every block be freed at most once and only while it lives."""
    blocks, calls = len(trace.block_bytes), len(trace.call_operator)
    _within(trace.event_kind, len(Event), "an event's kind")
    _within(trace.block_category, len(Category), "a block's category")
    _within(trace.call_phase, len(Phase), "a call's phase")
    _within(trace.call_operator, len(trace.operators), "a call's operator")
    for module in (trace.block_module, trace.call_module):
        _within(module, len(trace.modules), "a module")
    for column in (trace.block_category, trace.block_module, trace.block_call):
        if len(column) != blocks:
            raise ValueError("block columns differ in length")
    counts = tuple(getattr(trace, name) for name in _HOST_COUNTS)
    if any(len(column) != calls for column in (trace.call_phase, trace.call_module, *counts)):
        raise ValueError("call columns differ in length")
    if any(len(column) and int(column.min()) < 0 for column in counts):
        raise ValueError("a count is negative")
    if blocks and int(trace.block_bytes.min()) < 0:
        raise ValueError("a block has a negative size")
    _within(trace.block_call, calls + 1, "a block's call")  # one beyond: allocated after the last call
    _within(trace.event_subject[trace.event_kind == Event.CALL], calls, "an event's call")
    allocated = trace.event_subject[trace.event_kind == Event.ALLOCATE]
    freed = trace.event_subject[trace.event_kind == Event.FREE]
    _within(allocated, blocks, "an allocated block")
    _within(freed, blocks, "a freed block")
    born, died = np.full(blocks, -1), np.full(blocks, len(trace.event_kind))
    born[allocated] = np.flatnonzero(trace.event_kind == Event.ALLOCATE)
    died[freed] = np.flatnonzero(trace.event_kind == Event.FREE)
    once = len(allocated) == blocks == len(np.unique(allocated))
    if not once or len(np.unique(freed)) != len(freed) or bool((died <= born).any()):
        raise ValueError("a block is allocated or freed twice, or freed before it exists")


def _within(column: np.ndarray[Any, Any], count: int, what: str) -> None:
    if len(column) and not (int(column.min()) >= 0 and int(column.max()) < count):
        raise ValueError(f"{what} is out of range")
