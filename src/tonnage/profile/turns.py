"""Recognises the turns of a program's loop, in the running program and as cheaply as possible.

A turn of a training loop ends when the last of its optimizers has stepped; without an optimizer, when a forward begins
after a backward. A turn of an inference loop is one call, from outside any module, of the module that is called most.
Hooks on every module would make each call slower, so they go as soon as it is known what the program does.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_SETTLED_CALLS = 8  # of the module that leads, after which its name is known
_ABANDONED = 16  # turns of one optimizer after which another that never steps is no longer waited for


class Turns:
    """Calls `on_turn` at the end of each; the other callbacks frame backward passes and optimizer steps."""

    def __init__(self, on_turn: Callable[[], None]) -> None:
        self._on_turn = on_turn
        self.on_backward: Callable[[bool], None] = lambda begins: None
        self.on_optimizer: Callable[[bool], None] = lambda begins: None
        self.training = False
        self.compiles = False  # then no hooks may be set on modules but these
        self.compiled: list[nn.Module] = []
        self._counts: dict[int, int] = {}  # steps of each optimizer that lives
        self._stepping: list[torch.optim.Optimizer] = []  # an optimizer may step another
        self._nested = 0
        self._called: Counter[int] = Counter()
        self._backward_seen = False
        self._module_hooks: list[Any] = []
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        register_optimizer_step_pre_hook(self._before_optimizer)
        register_optimizer_step_post_hook(self._after_optimizer)
        self._module_hooks = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        ]
        self._watch_optimizers()
        self._watch_backward()
        self._watch_compiler()

    def remove(self) -> None:
        """The program goes on as if nothing had been there. Hooks of optimizers stay, and do nothing: torch does not
        allow them to go while they are called, which is when this happens."""
        self._on_turn = lambda: None
        self._remove_module_hooks()
        while self._undo:
            self._undo.pop()()

    def _watch_optimizers(self) -> None:
        original = torch.optim.Optimizer.__init__

        def made(this: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(this, *args, **kwargs)
            self.training = True
            self._know(this)
            self._remove_module_hooks()

        torch.optim.Optimizer.__init__ = made
        self._undo.append(lambda: restore(torch.optim.Optimizer, "__init__", made, original))

    def _watch_backward(self) -> None:
        original = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            self.training = self._backward_seen = True
            self.on_backward(True)
            try:
                original(*args, **kwargs)
            finally:
                self.on_backward(False)

        torch.autograd.backward = backward
        self._undo.append(lambda: restore(torch.autograd, "backward", backward, original))

    def _watch_compiler(self) -> None:
        """Hooks on all modules would be compiled with them, and everything again when they go: they go before."""
        original = torch.compile

        @wraps(original)
        def compiling(*args: Any, **kwargs: Any) -> Any:
            self._remove_module_hooks()
            self.compiles = True
            made = original(*args, **kwargs)
            if args or "model" in kwargs:
                return self._know_compiled(made)
            return lambda model: self._know_compiled(made(model))  # a decorator, which will compile one

        torch.compile = compiling
        self._undo.append(lambda: restore(torch, "compile", compiling, original))

    def _know_compiled(self, made: Any) -> Any:
        """A compiled module calls its own hooks outside of what is compiled."""
        if isinstance(made, nn.Module):
            self.compiled.append(made)
            self._module_hooks.append(made.register_forward_hook(self._after_leader))
        return made

    # -- training -----------------------------------------------------------------------------------------------------

    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer in self._stepping:  # its last step has raised, and nobody was told that it ended
            del self._stepping[self._stepping.index(optimizer) :]
        self._stepping.append(optimizer)
        if len(self._stepping) == 1:
            self.on_optimizer(True)

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer in self._stepping:
            del self._stepping[self._stepping.index(optimizer) :]
        if self._stepping:
            return
        self.on_optimizer(False)
        self._know(optimizer)
        before = self._full_turns()
        self._counts[id(optimizer)] += 1
        if self._full_turns() > before:
            self._on_turn()

    def _know(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) not in self._counts:
            self._counts[id(optimizer)] = 0
            weakref.finalize(optimizer, self._counts.pop, id(optimizer), None)

    def _full_turns(self) -> int:
        """Each optimizer has stepped that often; one that never does is not waited for for ever."""
        if len(self._counts) == 1:  # nearly always, and this is asked in every step
            return next(iter(self._counts.values()))
        counts = list(self._counts.values())
        if max(counts, default=0) >= _ABANDONED:
            counts = [count for count in counts if count]
        return min(counts, default=0)

    # -- inference, and training by hand ------------------------------------------------------------------------------

    def _enter(self, *_: Any) -> None:
        if self._nested == 0 and self._backward_seen and torch._C._current_graph_task_id() == -1:
            self._backward_seen = False
            self._on_turn()
        self._nested += 1

    def _leave(self, module: nn.Module, *_: Any) -> None:
        self._nested = max(self._nested - 1, 0)
        if self._nested == 0 and not self.training:
            self._after_call(module)

    def _after_call(self, module: nn.Module) -> None:
        most = max(self._called.values(), default=0)
        self._called[id(module)] += 1
        if self._called[id(module)] <= most:
            return
        # A forward with gradients is half a training step, unless no backward ever comes.
        if torch.is_grad_enabled() and self._called[id(module)] < _SETTLED_CALLS:
            return
        if self._called[id(module)] >= _SETTLED_CALLS and self._module_hooks:
            self._remove_module_hooks()
            self._module_hooks = [module.register_forward_hook(self._after_leader)]
        self._on_turn()

    def _after_leader(self, *_: Any) -> None:
        if not self.training:
            self._on_turn()

    def _remove_module_hooks(self) -> None:
        while self._module_hooks:
            self._module_hooks.pop().remove()
        self._nested = 0


def restore(owner: Any, name: str, ours: Any, original: Any) -> None:
    """Put back what was there, unless the program has put something of its own around ours."""
    if getattr(owner, name) is ours:
        setattr(owner, name, original)
