"""The public verbs by name, and rooms that are verbs: `tonnage.estimate` is a package, and once it is imported it hides the
function of that name.

So the package can be called: `tonnage.estimate("train.py")` works before and after anything in it was imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_HOMES = {
    "estimate": "tonnage.api",
    "profile": "tonnage.api",
    "recommend": "tonnage.api",
    "allocate": "tonnage.planning",
    "split": "tonnage.stages.splitting",
    "configure": "tonnage.service.configuring",
    "deploy": "tonnage.service.deployed",
}


def find_verb(name: str) -> Any:
    """Imported on first use: `import tonnage` loads neither numpy nor torch. Raises `KeyError`."""
    return getattr(import_module(_HOMES[name]), name)


class Verb(ModuleType):
    """A package that does, when called, what the function of its name does."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return find_verb(self.__name__.rpartition(".")[2])(*args, **kwargs)


def make_callable(name: str) -> None:
    """To be called by the package with its own name."""
    sys.modules[name].__class__ = Verb
