"""Checks in a program's source: what a condition on unknown values must be for the program to go on.

`assert mask.any()` and `if scores.min() < 0: raise ...` do not decide what the model computes. A program that works
passes its own checks, so their outcome is known although the values are not.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import cache
from types import FrameType

_REPORTS = {
    "print",
    "warn",
    "warning",
    "warn_once",
    "warning_once",
    "error",
    "info",
    "debug",
    "critical",
    "exception",
    "log",
}


def passing(frame: FrameType) -> bool | None:
    """The outcome with which the check at the frame's line passes; None if there is no check but a real decision."""
    for first, last, outcome in _checks(frame.f_code.co_filename):
        if first <= frame.f_lineno <= last:
            return outcome
    return None


def repeats(frame: FrameType) -> bool:
    """Is the frame at the condition of a `while` loop?"""
    loops = (node.test for node in ast.walk(parsed(frame.f_code.co_filename)) if isinstance(node, ast.While))
    return any(test.lineno <= frame.f_lineno <= (test.end_lineno or test.lineno) for test in loops)


def chooses_number(frame: FrameType) -> bool:
    """Does the frame call `max` or `min`? They ask for the truth of a comparison, but either outcome is a number."""
    for place, (line, _, column, _) in enumerate(frame.f_code.co_positions()):
        if 2 * place == frame.f_lasti and line is not None and column is not None:
            text = linecache.getline(frame.f_code.co_filename, line).encode()[column:]
            return text.startswith((b"max(", b"min("))
    return False


@cache
def parsed(filename: str) -> ast.AST:
    """A file's source as a tree; an empty one where there is none."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


@cache
def _checks(filename: str) -> tuple[tuple[int, int, bool], ...]:
    """First line, last line and passing outcome of the condition of every check in a file."""
    return tuple(_conditions(parsed(filename)))


def _conditions(tree: ast.AST) -> Iterator[tuple[int, int, bool]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            wanted = True
        elif isinstance(node, ast.If) and not node.orelse and all(map(_computes_nothing, node.body)):
            wanted = False
        else:
            continue
        test = node.test
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, wanted = test.operand, not wanted
        yield test.lineno, test.end_lineno or test.lineno, wanted


def _computes_nothing(statement: ast.stmt) -> bool:
    """Raises, reports or does nothing at all."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in _REPORTS
    return isinstance(statement, ast.Raise | ast.Pass)
