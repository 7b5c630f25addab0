"""Runs a user's script as if it had been started by itself, and tells when it loads torch. Standard library alone."""

from __future__ import annotations

import importlib.util
import sys
import traceback
import types
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path


class TorchWatch(MetaPathFinder):
    """Calls back once torch has been loaded, whoever loads it."""

    def __init__(self, loaded: Callable[[], None]) -> None:
        self._loaded = loaded

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            self._call_after(spec.loader)
        return spec

    def _call_after(self, loader: Loader) -> None:
        original = loader.exec_module

        def execute(module: types.ModuleType) -> None:
            original(module)
            self._loaded()

        loader.exec_module = execute  # type: ignore[method-assign]


def run_script(target: str) -> None:
    path = Path(target).resolve()
    sys.path[0] = str(path.parent)
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    # Without what this file imports from __future__: it would change the program's annotations.
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)


def show_error(error: BaseException) -> None:
    """The program's own traceback, without the frames that lead to it."""
    trace, ours = error.__traceback__, Path(__file__).parent
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename, ours):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def _is_ours(file: str, folder: Path) -> bool:
    return file == "<frozen runpy>" or Path(file).parent == folder
