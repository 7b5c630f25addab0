"""Sees every operator that runs on the virtual GPU, below autograd: counts memory, records calls, keeps known values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from tonnage.program.trace import D2H, H2D, Category, Operator, Phase
from tonnage.program.virtual_gpu import accumulation, composites, distributed, host, rules, sparse, stand_in
from tonnage.program.virtual_gpu.arguments import Call, parts_of, tensors_in
from tonnage.program.virtual_gpu.describe import call_key, describe_call, describe_tensor
from tonnage.program.virtual_gpu.learning import learn_results, learn_update
from tonnage.program.virtual_gpu.modules import ModuleStack
from tonnage.program.virtual_gpu.pinned import Pinned
from tonnage.program.virtual_gpu.recorder import UNTAGGED, Recorder
from tonnage.program.virtual_gpu.values import Twins

aten = torch.ops.aten
functorch: Any = torch._C._functorch
# Operators that may meet host tensors of any size beside virtual ones, as on CUDA.
_MIXES_DEVICES = (
    "copy",
    "index",
    "_to_copy",
    "_foreach",
    "_fused",
    "set_",
    "_amp",
    "_pin_memory",
    "resize",
    "where",
    "_pack_padded",
    "_ctc_loss",
)
# CUDA kernels that allocate their results from the last to the first; the order decides how the cache fragments.
_LAST_OUTPUT_FIRST = {"aten::native_dropout"}
_FILLED_IN_PLACE = {"aten::scatter", "aten::scatter_add", "aten::index_put", "aten::index_add", "aten::index_copy"}
# Launch nothing and allocate nothing, although their schemas do not say so.
_VIEWS_BY_NAME = {
    "aten::_unsafe_view", "aten::_reshape_alias", "aten::lift_fresh", "aten::lift", "aten::detach_",
    "aten::_sparse_coo_tensor_with_dims_and_tensors", "aten::is_coalesced",
}  # fmt: skip


class _Storage(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage that remembers which block it stands for."""

    __slots__ = ("address", "block", "key")
    address: int
    block: int
    key: int


class _Info:
    """What the schema of an operator says about it, looked up once."""

    __slots__ = (
        "argument_names",
        "collective",
        "composite",
        "fills_in_place",
        "mutates",
        "name",
        "rule",
        "skips_kernel",
        "sparse_rule",
        "splits",
        "strict_devices",
        "view",
    )

    def __init__(self, func: torch._ops.OpOverload) -> None:
        schema = func._schema
        self.name = schema.name
        aliases = [r.alias_info for r in schema.returns]
        self.view = schema.name in _VIEWS_BY_NAME or any(a is not None and not a.is_write for a in aliases)
        self.mutates = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        self.argument_names = [a.name for a in schema.arguments]
        short = schema.name.removeprefix("aten::")
        self.strict_devices = schema.name.startswith("aten::") and not short.startswith(_MIXES_DEVICES)
        # In-place updates of whole lists change no memory; their per-tensor meta kernels would take most of the time.
        self.skips_kernel = self.mutates and short.endswith("_") and short.startswith(("_foreach_", "_fused_", "_amp_"))
        self.composite = composites.decomposition(func)
        self.collective = distributed.is_collective(func)
        self.fills_in_place = schema.name in _FILLED_IN_PLACE
        self.rule: Callable[..., Any] | None = rules.find(func)
        self.splits = rules.splits(func)
        self.sparse_rule = sparse.find(func)


class OperatorMode(TorchDispatchMode):
    """The virtual GPU's memory and its log."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the dispatch below so that its compiler is imported at the first call

    def __init__(self, recorder: Recorder, modules: ModuleStack) -> None:
        super().__init__()
        self.recorder = recorder
        self.modules = modules
        self.twins = Twins()
        self.pinned = Pinned()
        self._accumulation = accumulation.InPlaceAccumulation()
        self.in_optimizer = False
        self.counting = True
        self.on_parameter_update: Callable[[], None] = lambda: None
        self._live: dict[int, _Storage] = {}
        self._next_address = 1 << 40
        self._infos: dict[torch._ops.OpOverload, _Info] = {}
        self._signatures: dict[tuple[Any, ...], int] = {}

    # -- what others may ask ------------------------------------------------------------------------------------------

    def is_virtual(self, tensor: torch.Tensor) -> bool:
        """Is this tensor on the virtual GPU (and not one the user wanted on `meta`)?"""
        return self.block_of(tensor) is not None

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """The block behind a tensor, or behind the values of a sparse one. Subclasses that wrap others have none."""
        with torch._C.DisableTorchFunction():  # also asked from hooks in the user's code, where the device is pretended
            while functorch.is_functorch_wrapped_tensor(tensor):
                tensor = functorch.get_unwrapped(tensor)
            while is_traceable_wrapper_subclass(tensor):
                tensor = getattr(tensor, tensor.__tensor_flatten__()[0][0])
            if not tensor.is_meta:
                return None
            parts = (tensor,) if tensor.layout is torch.strided else parts_of(tensor)
            if not parts or not torch._C._has_storage(parts[-1]):
                return None
            reference = self._live.get(parts[-1].untyped_storage()._cdata)
        return None if reference is None else reference.block

    def address(self, key: int) -> int:
        """Where a storage seems to lie. No two overlap: programs look for shared weights by their addresses."""
        reference = self._live.get(key)
        return 0 if reference is None else reference.address

    def tag(self, tensor: torch.Tensor | None, category: Category) -> None:
        block = None if tensor is None else self.block_of(tensor)
        if block is not None:
            self.recorder.tag(block, category)
        if tensor is not None and block is not None and tensor.layout is not torch.strided:
            self._tag_places(tensor, category)

    def _tag_places(self, tensor: torch.Tensor, category: Category) -> None:
        """Where the values of a sparse tensor belong. The places may be those of a batch, which stay what they are."""
        with torch._C.DisableTorchFunction():
            places = parts_of(tensor)[:-1]
        for part in places:
            block = self.block_of(part)
            if block is not None and self.recorder.block_tag[block] == UNTAGGED:
                self.recorder.tag(block, category)

    @property
    def phase(self) -> Phase:
        if torch._C._current_graph_task_id() != -1:
            return Phase.BACKWARD
        if self.in_optimizer:
            return Phase.OPTIMIZER
        return Phase.FORWARD if self.modules.started else Phase.SETUP

    # -- the dispatch itself ------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if types and any(_takes_itself_apart(kind) for kind in types):
            return NotImplemented  # comes back with the tensors inside
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        info = self._info(func)
        if info.sparse_rule is not None and sparse.concerns(args):
            return info.sparse_rule(self, args, kwargs)
        if func is accumulation.add and self._accumulation.applies(args):
            func = accumulation.add_in_place
            self._account(self._info(func), func, args, kwargs, list(args), args[0])
            return args[0]
        if info.fills_in_place and self._fills_fresh_block(args):
            self._account(info, func, args, kwargs, list(tensors_in(args, kwargs)), None)
            return args[0]
        if info.composite is not None:
            with self:
                return info.composite(*args, **kwargs)
        if info.view:
            self.recorder.view()
            return func(*args, **kwargs)
        if info.collective:
            return distributed.collective(func, args)
        tensors = list(tensors_in(args, kwargs))
        virtual = [t for t in tensors if t.is_meta and t.untyped_storage()._cdata in self._live]
        if not virtual and not self._creates(kwargs):
            result = host.run(func, info.name, args, kwargs)
            self.recorder.host_operator(*host.cost(info.name, result))
            return result
        if len(virtual) != len(tensors):
            self._check_devices(info, tensors, virtual)
        result = self._run(info, func, args, kwargs)
        if not info.splits:
            self._account(info, func, args, kwargs, tensors, result)
        return result

    def account(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Count and record a part of an operator that a rule has taken apart."""
        self._account(self._info(func), func, args, kwargs, list(tensors_in(args, kwargs)), result)

    def _info(self, func: torch._ops.OpOverload) -> _Info:
        info = self._infos.get(func)
        if info is None:
            info = self._infos[func] = _Info(func)
        return info

    def _fills_fresh_block(self, args: Sequence[Any]) -> bool:
        """Gradients of selections are zeros, filled in place; for tensors that look like subclasses, as meta tensors do,
        torch makes a filled copy instead."""
        if torch.is_grad_enabled() or torch._C._current_graph_task_id() == -1 or not args[0].is_meta:
            return False
        return self.block_of(args[0]) == len(self.recorder.block_bytes) - 1

    def _creates(self, kwargs: dict[str, Any]) -> bool:
        """Does this operator bring something new onto the virtual GPU (a factory, a copy from the host)?"""
        device = kwargs.get("device")
        return self.counting and device is not None and device.type == "meta"

    def _check_devices(self, info: _Info, tensors: list[torch.Tensor], virtual: list[torch.Tensor]) -> None:
        if not info.strict_devices or not virtual:
            return
        if any(t.dim() > 0 and t.device.type == "cpu" for t in tensors):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"(when calling {info.name})"
            )

    def _run(self, info: _Info, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if info.skips_kernel:
            return args[0] if func._schema.returns else None
        if info.rule is not None:
            return info.rule(self, func, args, kwargs)
        try:
            if any(isinstance(a, torch.Tensor) and a.layout is not torch.strided for a in args):
                return stand_in.run(self, func, args, kwargs)
            return func(*args, **kwargs)
        except NotImplementedError:
            return stand_in.run(self, func, args, kwargs)

    def _account(
        self,
        info: _Info,
        func: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
        result: Any,
    ) -> None:
        phase = self.phase
        module = self.modules.current(phase)
        if info.mutates and phase in (Phase.FORWARD, Phase.SETUP) and not torch.is_grad_enabled():
            self._note_update(inputs)
        outputs = [] if info.skips_kernel else [t for t in tensors_in((result,), {}) if t.is_meta]
        for tensor in reversed(outputs) if info.name in _LAST_OUTPUT_FIRST else outputs:
            self._count(tensor, module, phase)
        call = Call(info.name, func, args, kwargs, inputs, outputs)
        if not info.mutates:
            learn_results(self.twins, call)
        elif self.twins and not info.skips_kernel:
            learn_update(self.twins, call)
        if info.name in ("aten::_to_copy", "aten::copy_"):
            self._note_copy(info, inputs, outputs, module, _is_non_blocking(info, args, kwargs))
        self.recorder.call(self._signature(info, call), module, phase)

    # -- memory -------------------------------------------------------------------------------------------------------

    def _count(self, tensor: torch.Tensor, module: int, phase: Phase) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._live.get(key)
        if known is not None:
            if self.recorder.block_bytes[known.block] == storage.nbytes():
                return
            self.recorder.free(known.block)  # resized in place: on CUDA a new block, then the old one goes
        reference = _Storage(storage, self._released)
        reference.key = key
        reference.block = self.recorder.allocate(storage.nbytes(), module, phase)
        reference.address = self._next_address
        self._next_address += max(storage.nbytes(), 1)
        self._live[key] = reference

    def _released(self, reference: _Storage) -> None:
        if self._live.get(reference.key) is reference:
            del self._live[reference.key]
            self.twins.forget(reference.key)
            self.recorder.free(reference.block)

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """Put a fresh meta tensor onto the virtual GPU without an operator."""
        phase = self.phase
        self._count(tensor, self.modules.current(phase), phase)
        return tensor

    def _note_update(self, inputs: list[torch.Tensor]) -> None:
        """Weights changed in place outside an optimizer: a hand-written training step."""
        changed = inputs[0] if inputs else None
        if changed is None or not (changed.requires_grad and changed.is_leaf):
            return
        block = self.block_of(changed)
        if block is not None and self.recorder.block_tag[block] in (UNTAGGED, Category.PARAMETERS):
            self.recorder.tag(block, Category.PARAMETERS)
            self.on_parameter_update()

    # -- the log ------------------------------------------------------------------------------------------------------

    def _note_copy(
        self, info: _Info, inputs: list[torch.Tensor], outputs: list[torch.Tensor], module: int, blocks_not: bool
    ) -> None:
        if not inputs:
            return
        source = inputs[0] if info.name == "aten::_to_copy" else inputs[-1]
        if source.device.type == "cpu":
            self.note_transfer(H2D, source, module, waits=not (blocks_not and self.pinned.holds(source)))
            if info.name == "aten::_to_copy" and self.modules.depth == 0:
                self.tag(outputs[0], Category.INPUTS)

    def note_transfer(self, direction: str, tensor: torch.Tensor, module: int = 0, *, waits: bool = True) -> None:
        """A copy between host and GPU; the host waits for it unless its memory is pinned and it was told not to."""
        if tensor.numel() == 0:
            return  # nothing is copied
        attributes = {"pinned": self.pinned.holds(tensor), "waits": waits}
        key = (direction, tuple(tensor.shape), tensor.dtype, *attributes.values())
        index = self._signatures.get(key)
        if index is None:
            index = self._intern(key, Operator(direction, (describe_tensor(tensor),), (), attributes))
        self.recorder.call(index, module, Phase.COPY)

    def note_read(self, tensor: torch.Tensor) -> None:
        """A device-to-host copy: `.item()`, `.cpu()`, printing."""
        self.note_transfer(D2H, tensor, self.modules.current(self.phase))

    def _signature(self, info: _Info, call: Call) -> int:
        _, func, args, kwargs, inputs, outputs = call
        key = call_key(func, args, kwargs, inputs, outputs)
        index = self._signatures.get(key)
        if index is not None:
            return index
        return self._intern(key, describe_call(info.name, info.argument_names, args, kwargs, outputs))

    def _intern(self, key: tuple[Any, ...], operator: Operator) -> int:
        index = self._signatures[key] = len(self.recorder.operators)
        self.recorder.operators.append(operator)
        return index


def _is_non_blocking(info: _Info, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if "non_blocking" in kwargs:
        return bool(kwargs["non_blocking"])
    return info.name == "aten::copy_" and len(args) > 2 and bool(args[2])


def _takes_itself_apart(kind: type) -> bool:
    """Is this a kind of tensor that wraps others (nested, distributed, quantised) and dispatches on its own?"""
    dispatch = getattr(kind, "__torch_dispatch__", None)
    return dispatch is not None and dispatch is not torch._C._disabled_torch_dispatch_impl
