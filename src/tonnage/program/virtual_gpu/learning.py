"""What becomes known of an operator's results: computed from what was known, true of every sane run, or guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tonnage.program.virtual_gpu.arguments import tensors_in
from tonnage.program.virtual_gpu.values import Twins, worth_knowing

_DATA_SOURCES = {"aten::_to_copy", "aten::rand", "aten::randn", "aten::rand_like", "aten::randn_like", "aten::normal"}
_NEVER = {"aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"}
# Integers that a program derives from unknown numbers; a draw from random numbers is as good as any.
_CHOICES = {
    "aten::argmax",
    "aten::argmin",
    "aten::topk",
    "aten::sort",
    "aten::argsort",
    "aten::multinomial",
    "aten::max",
    "aten::min",
}
# Tensors filled with one number, whatever tensor they are made after: the number, or two more than its position.
_FILLED = {
    "aten::new_zeros": 0, "aten::zeros_like": 0, "aten::new_ones": 1, "aten::ones_like": 1, "aten::full_like": 3,
    "aten::new_full": 4,
}  # fmt: skip
_MOST_FILLED = 1 << 12
# Programs check their numbers: all are valid, none is bad.
_CHECKS = {"aten::all": True, "aten::any": False, "aten::_is_all_true": True, "aten::_is_any_true": False}
_MOST_SAMPLED = 1 << 22


def learn_results(
    twins: Twins,
    name: str,
    func: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
) -> None:
    """Learn what an operator returned, where anything is worth knowing."""
    if not outputs or not any(worth_knowing(t, name in _DATA_SOURCES) for t in outputs):
        return
    is_guess = False
    value = _constant(name, outputs, args)
    if value is None and not all(not t.is_meta or twins.knows(t.untyped_storage()._cdata) for t in inputs):
        value, is_guess = _sample(name, func, args, kwargs), True
    elif value is None and not name.startswith(("aten::empty", "aten::new_empty")):
        value, is_guess = _compute(func, *_as_known(twins, args, kwargs)), any(map(twins.is_guess, inputs))
    if value is not None:
        for tensor, known in zip(outputs, tensors_in((value,), {}), strict=False):
            if known.shape == tensor.shape and known.dtype == tensor.dtype:
                twins.learn(tensor, known, is_guess=is_guess)


def learn_update(
    twins: Twins,
    name: str,
    func: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
) -> None:
    """Learn or forget what an operator changed in place."""
    changed = outputs[0] if outputs else (inputs[0] if inputs else None)
    if changed is None or not changed.is_meta:
        return
    key = changed.untyped_storage()._cdata
    others = [t for t in inputs if t is not changed and t.is_meta]
    computable = all(twins.knows(t.untyped_storage()._cdata) for t in others)
    if computable and twins.knows(key):
        _compute(func, *_as_known(twins, args, kwargs))
    elif computable and name in ("aten::fill_", "aten::zero_", "aten::copy_") and worth_knowing(changed):
        known_args, known_kwargs = _as_known(twins, args[1:], kwargs)
        blank = torch.empty(changed.shape, dtype=changed.dtype)
        if _compute(func, (blank, *known_args), known_kwargs) is not None:
            twins.learn(changed, blank, is_guess=any(map(twins.is_guess, others)))
    else:
        twins.forget(key)


def _as_known(twins: Twins, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def known(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return twins.value(value) if value.is_meta else value
        if isinstance(value, list | tuple):
            return type(value)(known(v) for v in value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value

    return tuple(known(a) for a in args), {k: known(v) for k, v in kwargs.items()}


def _constant(name: str, outputs: list[torch.Tensor], args: Sequence[Any] = ()) -> torch.Tensor | None:
    """Values that hold for every sane run: nothing is NaN, everything is finite, ones are ones."""
    position = _FILLED.get(name)
    if position is not None and outputs[0].numel() <= _MOST_FILLED:
        value = position if position in (0, 1) else args[position - 2]
        known = isinstance(value, bool | int | float)
        return torch.full(outputs[0].shape, value, dtype=outputs[0].dtype) if known else None
    if name in _NEVER:
        return torch.zeros(outputs[0].shape, dtype=torch.bool)
    if name == "aten::isfinite":
        return torch.ones(outputs[0].shape, dtype=torch.bool)
    return None


def _sample(name: str, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A plausible choice (routing, sampled token) where the operator chooses among numbers that nobody knows."""
    if name in _CHECKS:
        tensor = torch.full((), _CHECKS[name]).expand(args[0].shape)
        return _compute(func, (tensor, *args[1:]), kwargs)
    if name not in _CHOICES or args[0].numel() > _MOST_SAMPLED or not args[0].is_floating_point():
        return None
    return _compute(func, (torch.rand(args[0].shape, dtype=torch.float32), *args[1:]), kwargs)


def _compute(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on known values. What the host cannot compute stays unknown."""
    try:
        return func(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
