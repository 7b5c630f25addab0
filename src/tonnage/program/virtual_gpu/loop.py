"""Recognises the user's loop and stops the program after enough turns of it.

A turn of a training loop ends when the last of its optimizers has stepped, or, in programs that update their weights by
hand, when the next forward begins. A turn of an inference loop is one call of the model from outside any module; where
several modules take turns (a model, then its loss), it is the first of them that counts. A data loader that feeds such a
loop ends early once enough has been seen, so that what follows the loop (evaluation, saving) is met as well; without one,
or where nobody expects its end, the program is stopped a little later.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tonnage.program.trace import Category
from tonnage.program.virtual_gpu.callers import asker
from tonnage.program.virtual_gpu.endings import is_noticed
from tonnage.program.virtual_gpu.modules import ModuleStack
from tonnage.program.virtual_gpu.operators import OperatorMode
from tonnage.units import MIB

# Seconds for what follows the loop (evaluation, saving) once the loop itself has been seen.
_AFTERMATH_SECONDS = 15.0
# How long a loop without a data loader is followed beyond what is needed, to see whether it ends by itself.
# Turns, because they make the answer the same each time; seconds, because nobody waits for a slow loop twice.
_LOOK_AHEAD_TURNS = 3
_LOOK_AHEAD_SECONDS = 3.0
# How long inference is followed whose memory grows with every call, or while a model on the GPU has not been called yet;
# and how long a data loader goes on whose results the program collects.
_PATIENCE_SECONDS = 20.0
# A program that only computes gradients has no step; after so many backward passes there is nothing more to learn.
_MOST_BACKWARDS = 64
_IDLE_EVERY = 16  # calls between two searches for models that were not called
_MOST_REPLAYS = 64
_NEGLIGIBLE_BYTES = 1 << 16
_MOST_STOPS = 2


class EnoughSeen(BaseException):
    """Unwinds the user's program once the trace is complete. Not an Exception, so that programs do not swallow it."""


class Loop:
    """Counts turns and decides when the program has shown enough."""

    def __init__(self, operators: OperatorMode, modules: ModuleStack, steps: int) -> None:
        self.operators = operators
        self.modules = modules
        self.recorder = operators.recorder
        self.wanted = steps
        self.backwards = 0
        self.forwards = 0
        self._forwards_of: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._most_forwards = 0  # of one module
        self._optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._depth = 0
        self._updated_by_hand = False
        self._last_peak = 0
        self._last_kept = 0
        self._quiet_calls = 0
        self._calls_before = 0
        self._patience_until: float | None = None
        self._is_idle: bool | None = None
        self._feeding: weakref.WeakSet[Allowance] = weakref.WeakSet()
        self._look_ahead_until: float | None = None
        self._counted: set[int] = set()
        self.parameter_count = 0
        self.epoch_steps = 0  # batches of the data loader that drives the loop
        self._replays = 0
        self._stops = 0
        self.was_cut = False  # has the program been kept from going on?
        self.on_deaf: Callable[[], None] = lambda: None

    def install(self) -> None:
        optimizer = torch.optim.Optimizer
        original = optimizer.__init__

        def patched(this: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(this, *args, **kwargs)
            self._optimizers.setdefault(this, 0)

        optimizer.__init__ = patched  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self.modules.on_first_call = self._tag_parameters
        self.modules.on_root_enter = self._before_forward
        self.modules.on_root_exit = self._after_forward
        self.operators.on_parameter_update = self._after_update

    @property
    def training(self) -> bool:
        return self.backwards > 0 or len(self._optimizers) > 0

    @property
    def enough(self) -> bool:
        return self.recorder.steps >= self.wanted

    def stop(self) -> NoReturn:
        """End the program. One that catches everything and goes on is not asked a third time."""
        self._stops += 1
        self.was_cut = True
        if self._stops > _MOST_STOPS:
            self.on_deaf()
        raise EnoughSeen

    def batches(self, length: int = 0) -> Allowance:
        """How many batches a data loader of this length that starts now may give."""
        allowance = Allowance(self, length)
        self._feeding.add(allowance)
        return allowance

    # -- training -----------------------------------------------------------------------------------------------------

    def before_backward(self) -> None:
        self._end_turn_by_hand()
        self.backwards += 1
        if self.backwards >= _MOST_BACKWARDS * self.wanted and self.recorder.steps == 0:
            self.recorder.warn("no optimizer step was seen; gradients only")
            self.stop()

    def after_replay(self) -> None:
        """A CUDA graph was replayed: its capture has shown what a turn needs, but nobody sees its turns."""
        self._replays += 1
        self.recorder.warn("CUDA graphs: the captured run was followed once, replays were not")
        if self._replays >= _MOST_REPLAYS:
            self.stop()

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.enough and self._look_ahead_until is None:
            self.stop()
        self._depth += 1
        self.operators.in_optimizer = True
        for parameter in _parameters(optimizer):
            self.operators.tag(parameter, Category.PARAMETERS)
            self.operators.tag(parameter.grad, Category.GRADIENTS)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._depth -= 1
        self.operators.in_optimizer = self._depth > 0
        if self._depth:
            return
        self._tag_state(optimizer)
        before = self._turns()
        self._optimizers[optimizer] = self._optimizers.get(optimizer, 0) + 1
        if self._turns() > before:
            self._end_turn()

    def _turns(self) -> int:
        """Full turns: each optimizer that takes part has stepped that often. One that never steps is waited for, but not
        for ever: some programs make more optimizers than they use. One that only wraps others never steps itself."""
        counts = list(self._optimizers.values())
        if 0 in counts and any(counts):
            counts = self._counts_without_wrappers()
        busiest = max(counts, default=0)
        if busiest < 4 * self.wanted:
            return min(counts, default=0)
        return min((count for count in counts if count), default=0)

    def _counts_without_wrappers(self) -> list[int]:
        stepped = {id(p) for optimizer, count in self._optimizers.items() if count for p in _parameters(optimizer)}
        return [
            count
            for optimizer, count in self._optimizers.items()
            if count or not all(id(p) in stepped for p in _parameters(optimizer))
        ]

    def _after_update(self) -> None:
        if not self._optimizers and self.backwards:
            self._updated_by_hand = True

    def _end_turn_by_hand(self) -> None:
        """The weights were updated, and now it begins again."""
        if self._updated_by_hand and torch._C._current_graph_task_id() == -1:
            self._updated_by_hand = False
            self._end_turn()

    def _end_turn(self) -> None:
        self.recorder.end_step()
        if self.enough:
            self._finish()

    def _finish(self) -> None:
        """Enough was seen. A data loader that drives the loop runs dry now, and the program goes on to what follows.
        Another loop is followed a little longer: if it ends by itself, what follows it belongs to the trace; if not, the
        trace is cut back to what was wanted."""
        now = time.monotonic()
        if any(allowance.drives_loop for allowance in self._feeding):
            self._limit_aftermath()
        elif self._look_ahead_until is None:
            self._look_ahead_until = now + _LOOK_AHEAD_SECONDS
            self.recorder.mark()
        elif now > self._look_ahead_until or self.recorder.steps >= (1 + _LOOK_AHEAD_TURNS) * self.wanted:
            self.recorder.rewind()
            self.stop()

    def _limit_aftermath(self) -> None:
        if threading.current_thread() is threading.main_thread() and signal.getitimer(signal.ITIMER_REAL)[0] == 0:
            signal.signal(signal.SIGALRM, _time_is_up)
            signal.setitimer(signal.ITIMER_REAL, _AFTERMATH_SECONDS)

    def close(self) -> None:
        """The program has ended; no alarm may ring any more."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        growth = self.recorder.growth() if self.was_cut and self.training else 0
        if growth > max(_NEGLIGIBLE_BYTES, self.recorder.peak_bytes // 10000):
            self.recorder.warn(
                f"the program keeps {growth / MIB:.2f} MiB more with every step: "
                f"after the {self.recorder.steps} steps that were followed it needs more than this"
            )

    # -- forwards -----------------------------------------------------------------------------------------------------

    def _before_forward(self, module: nn.Module, inputs: object) -> None:  # noqa: ARG002  (the hook's signature)
        self._calls_before = len(self.recorder.call_operator)
        if isinstance(module, ParametrizationList):
            return
        if self.enough and self._look_ahead_until is None and module.training and torch.is_grad_enabled():
            self.stop()  # the next epoch begins
        self._end_turn_by_hand()

    def _after_forward(self, module: nn.Module) -> None:
        if torch._C._current_graph_task_id() != -1:
            return
        # To read a parametrized weight is no turn, nor is a module that works on the host, such as a transform of data.
        if isinstance(module, ParametrizationList) or len(self.recorder.call_operator) == self._calls_before:
            return
        self.forwards += 1
        # A forward with gradients is half a training step, unless no backward ever comes.
        if self.training or (torch.is_grad_enabled() and self.forwards < 2 * self.wanted):
            return
        if not self._begins_turn(module):
            return
        # Token by token a cache grows, long before it exceeds the peak of the prompt: what stays counts as well.
        peak, kept = self.recorder.peak_bytes, self.recorder.allocated_bytes
        growth, grows = kept - self._last_kept, peak > self._last_peak or kept > self._last_kept
        self._last_peak, self._last_kept = peak, kept
        self._quiet_calls = 0 if grows else self._quiet_calls + 1
        if grows:
            self._look_ahead_until = None  # something new: what was seen since the mark belongs to the trace
        self.recorder.end_step()
        if self.enough:
            self._end_inference(growth)

    def _begins_turn(self, module: nn.Module) -> bool:
        """Was this module called more often than any other so far?"""
        count = self._forwards_of[module] = self._forwards_of.get(module, 0) + 1
        is_first, self._most_forwards = count > self._most_forwards, max(count, self._most_forwards)
        return is_first

    def _end_inference(self, growth: int) -> None:
        """Finish once a few calls in a row bring nothing new and every model was called, or patience ends."""
        is_quiet = self._quiet_calls >= self.wanted - 1
        if is_quiet and not self._has_idle_model():
            self._finish()
            return
        now = time.monotonic()
        self._patience_until = self._patience_until or now + _PATIENCE_SECONDS
        if now > self._patience_until:
            self.recorder.warn(
                "a model on the GPU was not called while the program was followed"
                if is_quiet
                else f"memory still grew, by {growth:,} bytes with the last call, when the model had been called "
                f"{self.recorder.steps} times; further calls were not followed and need more"
            )
            self.stop()

    def _has_idle_model(self) -> bool:
        """Is there a model on the GPU, not a part of another one, of which nothing has been called?"""
        if self.recorder.steps % _IDLE_EVERY and self._is_idle is not None:
            return self._is_idle
        found = [module for module in gc.get_objects() if isinstance(module, nn.Module)]
        parts = {id(part) for module in found for part in module._modules.values()}
        models = ([*module.parameters()] for module in found if id(module) not in parts)
        self._is_idle = any(parameters and not any(map(self._is_in_use, parameters)) for parameters in models)
        return self._is_idle

    def _is_in_use(self, parameter: nn.Parameter) -> bool:
        """Not on the GPU, or tagged by the first call of its module."""
        block = self.operators.block_of(parameter)
        return block is None or self.recorder.block_tag[block] == Category.PARAMETERS

    # -- what is what -------------------------------------------------------------------------------------------------

    def _tag_parameters(self, module: nn.Module) -> None:
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            self.operators.tag(tensor, Category.PARAMETERS)
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in self._counted and not is_lazy(parameter):
                self._counted.add(id(parameter))
                self.parameter_count += int(parameter.numel())  # a tensor while `torch.jit.trace` is watching

    def _tag_state(self, optimizer: torch.optim.Optimizer) -> None:
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    self.operators.tag(value, Category.OPTIMIZER_STATE)


class Allowance:
    """What one pass over a data loader may still give, judged by what the program does with the batches."""

    def __init__(self, loop: Loop, length: int) -> None:
        self._loop = loop
        self._length = length
        self._forwards = loop.forwards
        self._backwards = loop.backwards
        self._given = 0
        self._may_end = True  # would the program take an early end for the end of the data?
        self._kept_bytes = 0
        self._patience_until = time.monotonic() + _PATIENCE_SECONDS

    @property
    def drives_loop(self) -> bool:
        """Does the loop end when this does?"""
        return self._may_end and self._feeds_model

    @property
    def _feeds_model(self) -> bool:
        """Did the model run on what was given?"""
        return self._given > 0 and self._loop.forwards > self._forwards

    def take(self) -> None:
        """Called before each batch; raises StopIteration when the loop has been seen. A program that does not expect it
        gets its batches: its loop ends in another way."""
        loop = self._loop
        self._may_end = is_noticed(asker())
        trains = loop.backwards > self._backwards
        seen = loop.enough if trains or not loop.training else loop.forwards - self._forwards >= loop.wanted
        grows, self._kept_bytes = loop.recorder.allocated_bytes > self._kept_bytes, loop.recorder.allocated_bytes
        if self._feeds_model and (trains or not loop.training):
            loop.epoch_steps = self._length
        if seen and self.drives_loop and (trains or not grows or time.monotonic() > self._patience_until):
            if grows and not trains:
                loop.recorder.warn("results are collected on the GPU from more batches than were followed")
            loop.was_cut = True
            raise StopIteration
        self._given += 1


def _time_is_up(*_: object) -> None:
    raise EnoughSeen


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
