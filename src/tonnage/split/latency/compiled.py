"""Loops that numba compiles where it is installed; without it they run as they are, only slower."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar, cast

Loop = TypeVar("Loop", bound=Callable[..., object])

COMPILED = find_spec("numba") is not None


def compiled(loop: Loop) -> Loop:
    """The loop as machine code, kept on disk between runs."""
    return cast(Loop, import_module("numba").njit(cache=True)(loop)) if COMPILED else loop
