"""Where fitted time models are kept: one comes with the package, `tonnage fit` writes another, which then counts."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.estimate.time_model import TimeModel

VARIABLE = "TONNAGE_TIME_MODEL"
_NAME = "time-model.json.gz"


def own_model_path() -> Path:
    """Where `tonnage fit` writes."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else user_data_path("tonnage") / _NAME


def current_model() -> TimeModel:
    """The model that the variable names, or fitted on this machine, else the one that comes with the package."""
    path = own_model_path()
    if path.exists():
        return read_model(path)
    if os.environ.get(VARIABLE):
        raise NotFound(
            f"there is no time model {path}, which {VARIABLE} names",
            f"write it with tonnage fit, or unset {VARIABLE}: then the package's own counts",
        )
    return shipped_model()


@cache
def shipped_model() -> TimeModel:
    return load_model(files("tonnage.estimate").joinpath("fitted", _NAME).read_bytes(), "the package's time model")


def read_model(path: Path) -> TimeModel:
    try:
        return load_model(path.read_bytes(), str(path))
    except OSError as error:
        raise InvalidFile(f"the time model {path} cannot be read: {error.strerror}") from None


def load_model(content: bytes, name: str) -> TimeModel:
    """The model in a file's content; `name` is what errors call it."""
    try:
        return TimeModel.from_dict(_unpacked(content))
    except ValueError as error:
        raise InvalidFile(
            f"{name} is not a time model of this version: {error}",
            "fit it again: tonnage fit; or remove it, and the package's own counts",
        ) from None


def _unpacked(content: bytes) -> Any:
    try:
        return json.loads(gzip.decompress(content))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        raise ValueError("it is no compressed JSON, or damaged") from None


def require_place(path: Path) -> None:
    """Raises UsageError if no model can be written there: before minutes of work, not after them."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    reasons = {
        "it is a folder": path.is_dir(),
        f"{parent} is no folder": not parent.is_dir(),
        f"{parent} is read-only": not os.access(parent, os.W_OK),
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise UsageError(f"the time model cannot be written to {path}: {reason}")


def write_model(model: TimeModel, path: Path) -> None:
    """The file appears complete or not at all; equal models give equal bytes."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(model.as_dict(), separators=(",", ":"))
        partial.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"the time model cannot be written to {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):  # such as a folder that is none
            partial.unlink()
