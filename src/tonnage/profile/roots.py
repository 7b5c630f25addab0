"""The modules that a loop itself calls. A step's forward begins with one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn


class Roots:
    """Found in one step by hooks on all modules; followed in the next ones by a hook on each root alone, which is cheap."""

    def __init__(self, on_call: Callable[[], None], compiled: Sequence[nn.Module] | None = None) -> None:
        """In a program that compiles, only `compiled` modules are followed: other hooks would make it compile again."""
        self._on_call = on_call
        self._depth = 0
        self._found = {id(module): module for module in compiled or ()}
        self._hooks: list[Any] = []
        self._is_settled = False
        if compiled is not None:
            self.settle()
            return
        self._hooks = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def settle(self) -> None:
        """A step has been seen."""
        if not self._is_settled:
            self._is_settled = True
            self.remove()
            self._hooks = [root.register_forward_pre_hook(self._called) for root in self._found.values()]
            self._found = {}

    def remove(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _enter(self, module: nn.Module, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._found[id(module)] = module
            self._on_call()

    def _leave(self, *_: Any) -> None:
        self._depth -= 1

    def _called(self, *_: Any) -> None:
        self._on_call()
