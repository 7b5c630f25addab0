"""What becomes known of an operator's results: computed from what was known, true of every sane run, or guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tonnage.program.virtual_gpu.arguments import Call, tensors_in
from tonnage.program.virtual_gpu.values import MOST_INTEGERS, Basis, Twins, fills_its_storage, worth_knowing

_DATA_SOURCES = {"aten::_to_copy", "aten::rand", "aten::randn", "aten::rand_like", "aten::randn_like", "aten::normal"}
# True of every sane run: no number is NaN or infinite.
_CERTAIN = {
    "aten::isnan": False, "aten::isinf": False, "aten::isposinf": False, "aten::isneginf": False, "aten::isfinite": True,
}  # fmt: skip
# Integers that a program derives from unknown numbers; a draw from random numbers is as good as any.
_CHOICES = {
    "aten::argmax", "aten::argmin", "aten::topk", "aten::sort", "aten::argsort", "aten::multinomial", "aten::max",
    "aten::min",
}  # fmt: skip
_MOST_SAMPLED = 1 << 22
# Tensors filled with one number, whatever tensor they are made after: the number, or its position among the arguments.
_FILLED = {"aten::new_zeros": 0, "aten::zeros_like": 0, "aten::new_ones": 1, "aten::ones_like": 1}
_FILLED_WITH = {"aten::full_like": 1, "aten::new_full": 2}
_QUESTIONS = {"aten::all", "aten::any", "aten::_is_all_true", "aten::_is_any_true"}  # about masks
_SELECTIONS = {"aten::index", "aten::masked_select", "aten::nonzero"}  # by masks
_COMPARISONS = {f"aten::{name}" for name in ("eq", "ne", "gt", "ge", "lt", "le")}
_COUNTS = {"aten::sum", "aten::count_nonzero"}
_OVERWRITES = {"aten::fill_", "aten::zero_", "aten::copy_"}
_KEEP_MASKS = {"aten::_to_copy", "aten::mul", "aten::clone", "aten::logical_and", "aten::bitwise_and"}


def learn_results(twins: Twins, call: Call) -> None:
    """Learn what an operator returned, where anything is worth knowing."""
    name, inputs, outputs = call.name, call.inputs, call.outputs
    if not outputs:
        return
    if name in _KEEP_MASKS and all(map(twins.is_mask, inputs)):
        twins.mark_mask(outputs[0])
    # What comes from the host or a generator is data; a copy within the GPU is worth as much as what it copies.
    is_data = name in _DATA_SOURCES and not (name == "aten::_to_copy" and inputs and inputs[0].is_meta)
    if outputs[0].dtype is not torch.bool and not any(worth_knowing(t, is_data) for t in outputs):
        if name == "aten::_to_copy" and is_data and inputs:
            twins.note_source(outputs[0], inputs[0])
        return
    basis = Basis.FACT
    value = _constant(call)
    if value is None and all(not t.is_meta or twins.knows(t.untyped_storage()._cdata) for t in inputs):
        value = _derived(twins, call)
        basis = max(map(twins.basis, inputs), default=Basis.FACT)
    elif value is None:
        value, basis = _assumed(twins, call)
    if value is not None:
        for tensor, known in zip(outputs, tensors_in((value,), {}), strict=False):
            if (known.dim() == 0 or known.shape == tensor.shape) and known.dtype == tensor.dtype:
                twins.learn(tensor, known, basis)


def learn_update(twins: Twins, call: Call) -> None:
    """Learn or forget what an operator changed in place."""
    _, func, args, kwargs, inputs, outputs = call
    changed = outputs[0] if outputs else (inputs[0] if inputs else None)
    if changed is None or not changed.is_meta:
        return
    key = changed.untyped_storage()._cdata
    others = [t for t in inputs if t is not changed and t.is_meta]
    computable = all(twins.knows(t.untyped_storage()._cdata) for t in others)
    basis = max(map(twins.basis, others), default=Basis.FACT)
    if computable and call.name in _OVERWRITES and fills_its_storage(changed) and worth_knowing(changed):
        known_args, known_kwargs = _as_known(twins, args[1:], kwargs)
        blank = torch.empty(changed.shape, dtype=changed.dtype)
        twins.forget(key)
        if _compute(func, (blank, *known_args), known_kwargs) is not None:
            twins.learn(changed, blank, basis)
    elif computable and twins.knows(key):
        twins.spread(changed)
        _compute(func, *_as_known(twins, args, kwargs))
        twins.trust(key, max(basis, twins.basis(changed)))
    else:
        twins.forget(key)


def _as_known(
    twins: Twins, args: Sequence[Any], kwargs: dict[str, Any], *, shaped: bool = True, full_masks: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with values instead of virtual tensors, either as large or as the single number that they are."""

    def known(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            found = twins.number(value) if not shaped else twins.value(value) if value.is_meta else value
            is_unknown_mask = full_masks and found is None and value.dtype is torch.bool
            return torch.ones(value.shape, dtype=torch.bool) if is_unknown_mask else found
        if isinstance(value, list | tuple):
            return type(value)(known(v) for v in value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value

    return tuple(known(a) for a in args), {k: known(v) for k, v in kwargs.items()}


def _constant(call: Call) -> torch.Tensor | None:
    """The one number that all elements are in every sane run: nothing is NaN, ones are ones."""
    name, output = call.name, call.outputs[0]
    value: Any = _CERTAIN.get(name)
    if name == "aten::ne" and len(call.inputs) == 2 and _is_same(*call.inputs):
        value = False  # only NaN differs from itself
    elif name in _FILLED and worth_knowing(output):
        value = _FILLED[name]
    elif name in _FILLED_WITH and worth_knowing(output):
        value = call.args[_FILLED_WITH[name]]
    return torch.tensor(value, dtype=output.dtype) if isinstance(value, bool | int | float) else None


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left is right or (
        left.is_meta
        and right.is_meta
        and left.untyped_storage()._cdata == right.untyped_storage()._cdata
        and (left.shape, left.stride(), left.storage_offset()) == (right.shape, right.stride(), right.storage_offset())
    )


def _derived(twins: Twins, call: Call) -> Any:
    """The result, computed on the host. Tensors of one number only are not written out for it where that can be avoided."""
    name, func, args, kwargs, inputs, outputs = call
    if name.startswith(("aten::empty", "aten::new_empty")):
        return None
    numbers = [number for tensor in inputs if (number := twins.number(tensor)) is not None]
    if inputs and len(numbers) == len(inputs):
        if torch.Tag.pointwise in func.tags or name in ("aten::_to_copy", "aten::clone"):
            return _compute(func, *_as_known(twins, args, kwargs, shaped=False))
        if name in _QUESTIONS and outputs[0].dtype is torch.bool:
            return numbers[0].bool()
        if name in _COUNTS and outputs[0].numel():
            return (numbers[0] * (inputs[0].numel() // outputs[0].numel())).to(outputs[0].dtype)
    if any(tensor.numel() > MOST_INTEGERS for tensor in inputs):
        return None
    return _compute(func, *_as_known(twins, args, kwargs))


def _assumed(twins: Twins, call: Call) -> tuple[Any, Basis]:
    """What unknown masks answer, which are taken to be true everywhere, and a plausible choice (routing, sampled token)
    where an operator chooses among numbers that nobody knows."""
    name, func, args, kwargs, _, outputs = call
    if name in _COMPARISONS and (source := twins.source(args[0])) is not None:
        others, _ = _as_known(twins, args[1:], {})
        is_known = all(other is not None for other in others)
        return _compute(func, (source, *others), kwargs) if is_known else None, Basis.FACT
    if name in _SELECTIONS and args[0].numel() <= MOST_INTEGERS and _lacks_only_masks(twins, args):
        return _compute(func, *_as_known(twins, args, kwargs, full_masks=True)), Basis.BOUND
    if name in _QUESTIONS:
        return torch.ones(outputs[0].shape, dtype=outputs[0].dtype), Basis.BOUND
    if name in _COUNTS and twins.is_mask(args[0]) and outputs[0].numel():
        count = args[0].numel() // outputs[0].numel()
        return torch.full(outputs[0].shape, count, dtype=outputs[0].dtype), Basis.BOUND
    if name not in _CHOICES or args[0].numel() > _MOST_SAMPLED or not args[0].is_floating_point():
        return None, Basis.FACT
    return _compute(func, (torch.rand(args[0].shape, dtype=torch.float32), *args[1:]), kwargs), Basis.CHOICE


def _lacks_only_masks(twins: Twins, args: Sequence[Any]) -> bool:
    return all(t.dtype is torch.bool or not t.is_meta or twins.value(t) is not None for t in tensors_in(args, {}))


def _compute(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on known values. What the host cannot compute stays unknown."""
    try:
        return func(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError):
        return None
