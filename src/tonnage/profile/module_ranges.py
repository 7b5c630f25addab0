"""Marks every module call as a range in the profile, so that kernels are found by module. Only while the profiler runs."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

from torch import nn
from torch.profiler import record_function

from tonnage.profile.trace_names import MODULE_PREFIX


class ModuleRanges:
    """Open from its making until `remove`."""

    def __init__(self) -> None:
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._roots: Counter[str] = Counter()
        self._open: list[tuple[str, Any]] = []
        self._hooks = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        while self._open:
            self._open.pop()[1].__exit__(None, None, None)

    def _enter(self, module: nn.Module, *_: Any) -> None:
        path = self._paths.get(module) or self._name(module)
        mark = record_function(MODULE_PREFIX + path)
        mark.__enter__()
        self._open.append((path, mark))

    def _leave(self, *_: Any) -> None:
        if self._open:
            self._open.pop()[1].__exit__(None, None, None)

    def _name(self, module: nn.Module) -> str:
        """A module and all below it get their names from the module through which the program entered."""
        own = type(module).__name__
        prefix = f"{self._open[-1][0]}.{own}" if self._open else self._root(own)
        for path, child in module.named_modules():
            self._paths.setdefault(child, f"{prefix}.{path}" if path else prefix)
        return self._paths[module]

    def _root(self, name: str) -> str:
        """Two models of one class are told apart by number."""
        self._roots[name] += 1
        return name if self._roots[name] == 1 else f"{name} {self._roots[name]}"


def is_compiled() -> bool:
    """New hooks would make `torch.compile` compile everything again."""
    import sys

    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0
