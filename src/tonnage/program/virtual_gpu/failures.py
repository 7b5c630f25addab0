"""Turns whatever ended a program early into one sentence with the user's line, and a hint."""

from __future__ import annotations

import os
import re
import traceback
from typing import Any

from tonnage.program.virtual_gpu.callers import is_user_file
from tonnage.program.virtual_gpu.errors import DataDependent, Unsupported
from tonnage.program.virtual_gpu.values import Unknown


class Refusal(Exception):
    """We say no: the message is meant for the user as it is."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def check(virtual: Any, request: dict[str, Any]) -> None:
    """A program that ended must have done something on the GPU."""
    if not virtual.recorder.block_bytes:
        raise Refusal(
            f"{request['target']} never used the GPU: nothing was put on a cuda device",
            'Tonnage follows programs written for cuda, such as model.to("cuda")',
        )
    if not virtual.recorder.call_operator or (not virtual.modules.started and not virtual.recorder.steps):
        virtual.recorder.warn("no model ran on the GPU; only its memory was counted")


def explain(error: BaseException, request: dict[str, Any]) -> tuple[str, str]:
    """Message and hint."""
    if isinstance(error, Refusal):
        return str(error), error.hint
    where = _place(error, request)
    if isinstance(error, SyntaxError):
        return f"{_short(error.filename or request['target'])}:{error.lineno}: {error.msg}", "the script does not parse"
    if isinstance(error, SystemExit):
        return (
            f"{request['target']} exited with status {error.code} before its first step",
            "pass its arguments after --, for example: tonnage estimate train.py -- --data DIR",
        )
    if isinstance(error, TypeError) and Unknown.__name__ in str(error):  # torch found it where it wants a whole number
        error = DataDependent("a size or a loop count is computed from values on the GPU")
    if isinstance(error, DataDependent):
        return f"{where}: {error}, which cannot be known without running it", (
            "decide it from sizes or settings instead of values, or keep the values on the CPU"
        )
    if isinstance(error, Unsupported):
        return f"{where}: {error}", "replace it by PyTorch operators for the estimate"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", ""
    return _explain_exception(error, where)


def explain_unknown(where: str) -> tuple[str, str]:
    return (
        f"{where}: a size is computed from values on the GPU, which cannot be known without running it",
        "decide it from sizes or settings instead of values, or keep the values on the CPU",
    )


def _explain_exception(error: BaseException, where: str) -> tuple[str, str]:
    text = " ".join(str(error).split("\n\n")[0].split())
    if isinstance(error, TypeError) and re.search(r"\bUnknown\b", text):
        return explain_unknown(where)
    operator = re.search(r"[Cc]ould not run '([^']+)'|^(\w+::\w+)\S*: attempted to run this operator with Meta", text)
    undescribed = re.match(r"There was no fake impl registered for <CustomOpDef\((\S+)\)>", text)
    if (isinstance(error, NotImplementedError) and operator) or undescribed:
        name = undescribed[1] if undescribed else operator and (operator[1] or operator[2])
        return (
            f"{where}: the operator {name} exists only for a real GPU",
            "custom CUDA operators need a meta implementation: see torch.library.register_fake",
        )
    if isinstance(error, ImportError):
        return f"{where}: {text}", "install what the program imports into the same environment"
    if isinstance(error, FileNotFoundError):
        return f"{where}: {text}", "the program must find its data as it would when run"
    if isinstance(error, PermissionError):
        return (
            f"{where}: {text}",
            "in an estimate only the working folder, the script's and the home folder take writes",
        )
    if "INTERNAL ASSERT FAILED" in text:
        return (
            f"{where}: torch cannot do this with tensors that have no data",
            "a limit of Tonnage; please report it",
        )
    if isinstance(error, MemoryError):
        return f"{where}: the host's memory is not enough to prepare the program", ""
    return (
        f"{where}: {type(error).__name__}: {text[:400]}",
        "the program fails by itself, before Tonnage has seen a step",
    )


def _place(error: BaseException, request: dict[str, Any]) -> str:
    """The user's line: the innermost frame outside installed packages, Tonnage and the standard library."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_file(frame.filename):
            return f"{_short(frame.filename)}:{frame.lineno}"
    return str(request["target"])


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
