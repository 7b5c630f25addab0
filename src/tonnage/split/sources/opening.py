"""A network from whatever the user names: a file of any kind, told apart by looking into it, or a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tonnage.errors import InvalidFile, UsageError
from tonnage.program.program import Program, parse_program
from tonnage.split.network import Network
from tonnage.split.sources.content import parse_json, read_text
from tonnage.split.sources.network_file import is_network, load_network
from tonnage.split.sources.profile_text import is_profile, parse_profile

_PROGRAMS = (".onnx", ".py", ".trace", ".prototxt", ".caffemodel")
_KINDS = "a network is a program (model.py:build), an ONNX file, a prototxt, a profile, or JSON, of Tonnage or public"


def open_network(
    target: str | Path,
    *,
    from_program: Callable[[Program], Network],
    from_public: Callable[[Mapping[str, Any], str], Network],
) -> Network:
    """The network that is meant; raises `NotFound`, `UsageError` or `InvalidFile`.

    `from_program` makes those whose costs no file tells: of `module:function`, ONNX files and Caffe models. `from_public`
    takes what a file of the public format says, and the file's name.
    """
    path = Path(target)
    if not path.is_file() or path.suffix.lower() in _PROGRAMS:
        return from_program(_splittable(parse_program(str(target))))
    text = read_text(path)
    if is_profile(text):
        return parse_profile(text, str(path))
    if not text.lstrip().startswith("{"):
        raise InvalidFile(f"{path} is no network", _KINDS)
    plain = parse_json(text, path)
    if is_network(plain):
        return load_network(plain, str(path))
    if is_public(plain):
        return from_public(plain, path.name)
    raise InvalidFile(f"{path} is JSON, but no network", _KINDS)


def is_public(plain: Any) -> bool:
    """Is this what a file of the public format says?"""
    return isinstance(plain, dict) and "nodes" in plain and "maxFPGAs" in plain


def _splittable(program: Program) -> Program:
    """A program that builds a network, and not one that only uses one."""
    if program.kind == "trace":
        raise UsageError(
            f"{program.target} cannot be split: a trace tells what a program did, not which operator reads what",
            "name the function that builds the network: model.py:build",
        )
    if program.kind == "script":
        raise UsageError(
            f"{program.target} names no function that builds a network", f"write it as {program.target}:build"
        )
    return program
