"""Files of a model that come with the request to load it, and count instead of those in the repository."""

from __future__ import annotations

import base64
import binascii
import shutil
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any

from tonnage.serve.errors import InvalidRequest
from tonnage.serve.repository import ModelFolder, read_folder

PREFIX = "file:"
_MOST_PARTS = 8  # folders in folders
_MOST_NAME = 200


def files_of(parameters: Mapping[str, Any]) -> dict[str, bytes]:
    """By their path below the model's folder, as `1/model.onnx`; bytes, or base64 from transports that have only text."""
    return {
        key.removeprefix(PREFIX): _content(key, value) for key, value in parameters.items() if key.startswith(PREFIX)
    }


def given_folder(name: str, files: Mapping[str, bytes]) -> ModelFolder:
    """A folder with these files, there for as long as somebody holds it. Raises `InvalidRequest` where a path is none."""
    for path in files:
        _check(path)
    if not name or name.startswith(".") or "/" in name or "\0" in name or len(name) > _MOST_NAME:
        raise InvalidRequest(f"{name[:100]!r} is no name of a model")
    keeper = _Keeper()
    try:
        for path, content in files.items():
            file = Path(keeper.path, name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    except OSError as error:
        raise InvalidRequest(f"the files of {name!r} cannot be kept: {error.strerror}") from None
    return replace(read_folder(Path(keeper.path, name)), keeper=keeper)


class _Keeper:
    """Its folder goes when nobody refers to it any more, at the latest when the process ends."""

    def __init__(self) -> None:
        self.path = mkdtemp(prefix="tonnage-model-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _content(key: str, value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise InvalidRequest(f"parameters.{key} is not a string")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"parameters.{key} is not base64") from None


def _check(path: str) -> None:
    parts = PurePosixPath(path).parts
    is_plain = all(part not in ("..", "/") and len(part) <= _MOST_NAME for part in parts)
    if not path or "\0" in path or not is_plain or not 1 <= len(parts) <= _MOST_PARTS:
        raise InvalidRequest(
            f"parameters.{PREFIX}{path[:100]} names no file in the folder of a model", "such as file:1/model.onnx"
        )
