"""Rooms that are verbs: `tonnage.estimate` is a package, and once it is imported it hides the function of that name.

So the package can be called: `tonnage.estimate("train.py")` works before and after anything in it was imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class Verb(ModuleType):
    """A package that does, when called, what the function of its name in `tonnage.api` does."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from importlib import import_module

        return getattr(import_module("tonnage.api"), self.__name__.rpartition(".")[2])(*args, **kwargs)


def make_callable(name: str) -> None:
    """To be called by the package with its own name."""
    sys.modules[name].__class__ = Verb
