"""Who notices that a data loader has no more batches: a loop that ends there, or nobody.

A capture ends an epoch early. `for batch in loader` takes that as it takes the end of the data, and so does code that
catches StopIteration; `next(batches)` in a counted loop would fail where the real program does not.
"""

from __future__ import annotations

import ast
import dis
import inspect
from functools import cache
from types import CodeType, FrameType
from typing import NamedTuple

from tonnage.program.virtual_gpu.guards import parsed

_ENDS = {"StopIteration", "StopAsyncIteration"}
_CATCHES_ALL = {"Exception", "BaseException", ""}


class _Site(NamedTuple):
    """What stands where a frame is."""

    asks_for_next: bool  # `next(iterator)` or `iterator.__next__()`, not a loop over it
    has_default: bool
    names_end: bool  # inside a `try` that catches the end of an iterator by its name
    catches_all: bool  # inside one that catches whatever there is


def is_noticed(frame: FrameType | None) -> bool:
    """Would the end of an iterator that this frame has just asked for a value end a loop, or be caught?"""
    is_iterator = True  # does the frame wait for an iterator, whose end StopIteration is?
    while frame is not None:
        site = _site(frame.f_code, frame.f_code.co_filename, frame.f_lasti)
        if is_iterator and (not site.asks_for_next or site.has_default or site.catches_all):
            return True
        if site.names_end:
            return True
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            return False  # Python makes an error of it
        is_iterator = frame.f_code.co_name == "__next__"
        frame = frame.f_back
    return False


@cache
def _site(code: CodeType, filename: str, offset: int) -> _Site:
    """By the source of the instruction; without it, what most programs do: loop."""
    place = list(code.co_positions())[offset // 2] if offset >= 0 else (None,) * 4
    if place[0] is None:
        return _Site(False, False, False, False)
    tree = parsed(filename)
    call = _call_at(tree, place) if _is_call(code.co_code, offset) else None
    caught = set(_caught(tree, place[0]))
    return _Site(
        asks_for_next=call is not None,
        has_default=call is not None and len(call.args) > 1,
        names_end=bool(caught & _ENDS),
        catches_all=bool(caught & _CATCHES_ALL),
    )


def _is_call(instructions: bytes, offset: int) -> bool:
    """And not a loop, whose place is that of what it goes over. A frame may stand behind its call, in the cache."""
    while offset > 0 and dis.opname[instructions[offset]] == "CACHE":
        offset -= 2
    return "CALL" in dis.opname[instructions[offset]]  # Python 3.11 has PRECALL as well


def _call_at(tree: ast.AST, place: tuple[int | None, ...]) -> ast.Call | None:
    """The call of `next` that is written there. No two calls have the same end; on where one begins Pythons disagree."""
    end = place[1], place[3]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (node.end_lineno, node.end_col_offset) == end:
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            return node if name in ("next", "__next__") else None
    return None


def _caught(tree: ast.AST, line: int) -> list[str]:
    """Names of what is caught around a line; nothing for a bare `except`."""
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
    around = [node for node in tries if node.body[0].lineno <= line <= (node.body[-1].end_lineno or line)]
    return [name for node in around for handler in node.handlers for name in _names(handler.type)]


def _names(caught: ast.expr | None) -> list[str]:
    if isinstance(caught, ast.Tuple):
        return [name for part in caught.elts for name in _names(part)]
    return [caught.id] if isinstance(caught, ast.Name) else [""] if caught is None else []
