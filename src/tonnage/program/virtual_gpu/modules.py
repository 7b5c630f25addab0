"""Which module of the user's model is running, in forward and in backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import nn

from tonnage.program.trace import Phase
from tonnage.program.virtual_gpu.recorder import Recorder


class ModuleStack:
    """Follows module calls through torch's global hooks; backward operators belong to the module of their forward."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stack: list[int] = []
        self._paths: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._module_of_node: dict[int, int] = {}
        self.started = False
        self.on_first_call: Callable[[nn.Module], None] = lambda module: None
        self.on_root_enter: Callable[[nn.Module, object], None] = lambda module, inputs: None
        self.on_root_exit: Callable[[nn.Module], None] = lambda module: None

    @property
    def depth(self) -> int:
        return len(self._stack)

    def install(self) -> None:
        nn.modules.module.register_module_forward_pre_hook(self._enter)
        nn.modules.module.register_module_forward_hook(self._leave, always_call=True)

    def current(self, phase: Phase) -> int:
        """The module path's index; in forward, note it for the autograd node that is being made."""
        if phase == Phase.BACKWARD and not self._stack:
            node = torch._C._current_autograd_node()
            return 0 if node is None else self._module_of_node.get(node._sequence_nr(), 0)
        module = self._stack[-1] if self._stack else 0
        if phase == Phase.FORWARD:
            self._module_of_node[torch._C._autograd._get_sequence_nr() - 1] = module
        return module

    def _enter(self, module: nn.Module, inputs: object) -> None:
        index = self._paths.get(module)
        if index is None:
            index = self._name(module)
        if not self._stack:
            self.started = True
            self.on_root_enter(module, inputs)
        self._stack.append(index)
        self._recorder.enter()

    def _leave(self, module: nn.Module, inputs: object, output: object) -> None:  # noqa: ARG002  (torch's signature)
        if self._stack:
            self._stack.pop()
        if not self._stack:
            self.on_root_exit(module)

    def _name(self, module: nn.Module) -> int:
        """Name a module and all below it, from the module through which the user entered."""
        prefix = self._recorder.modules[self._stack[-1]] if self._stack else ""
        root = type(module).__name__
        for path, child in module.named_modules():
            if child not in self._paths:
                full = ".".join(part for part in (prefix, path) if part) or root
                self._paths[child] = self._recorder.module(full)
                self.on_first_call(child)
        return self._paths[module]
