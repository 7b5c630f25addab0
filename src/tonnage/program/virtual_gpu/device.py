"""Makes Python code believe that there is a CUDA device: `cuda` means the virtual GPU, whose tensors are meta tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from tonnage.program.virtual_gpu.operators import OperatorMode
from tonnage.program.virtual_gpu.values import FULL_MASK, Basis, Unknown

CUDA = torch.device("cuda", 0)
META = torch.device("meta")
CPU = torch.device("cpu")
Handler = Callable[["DeviceMode", Any, Sequence[Any], dict[str, Any]], Any]
_HANDLERS: dict[Any, Handler] = {}
_SIZED = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.arange}


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for function in functions:
            _HANDLERS[function] = handler
        return handler

    return register


class DeviceMode(TorchFunctionMode):
    """Translates between the devices the program names and the tensors there are."""

    def __init__(self, operators: OperatorMode) -> None:
        super().__init__()
        self.operators = operators
        self.default_device: torch.device | None = None

    def set_default_device(self, device: Any) -> None:
        """`torch.set_default_device`: torch would put its own mode below this one, where it is too late."""
        chosen = as_device(device)
        self.default_device = None if chosen is None or chosen.type == "cpu" else chosen

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, args, kwargs)
        if func in _SIZED:
            self._refuse_unknown_sizes(args)
        if self.default_device is not None and kwargs.get("device") is None and func in _device_constructors():
            kwargs = {**kwargs, "device": self.default_device}
        if kwargs.get("pin_memory"):  # no host memory can be pinned here
            kwargs = {**kwargs, "pin_memory": False}
        if "device" in kwargs:
            return self.with_device(func, args, kwargs)
        return func(*args, **kwargs)

    def _refuse_unknown_sizes(self, args: Sequence[Any]) -> None:
        for value in args:
            if isinstance(value, tuple | list):
                self._refuse_unknown_sizes(value)
            elif isinstance(value, Unknown):
                operator.index(value)
            elif self.is_virtual(value) and value.dim() == 0 and isinstance(number := self.scalar(value), Unknown):
                operator.index(number)

    def with_device(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        device = as_device(kwargs["device"])
        if device is None or device.type == "cpu":
            return func(*args, **kwargs)
        kwargs = {**kwargs, "device": META}
        if device.type == "cuda":
            kwargs.pop("generator", None)
            kwargs.pop("pin_memory", None)
            return func(*args, **kwargs)
        return self.on_meta(func, args, kwargs)

    def on_meta(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The program itself asks for `meta`: not ours, not counted."""
        self.operators.counting, before = False, self.operators.counting
        try:
            return func(*args, **kwargs)
        finally:
            self.operators.counting = before

    def is_virtual(self, tensor: Any) -> bool:
        return isinstance(tensor, torch.Tensor) and self.operators.is_virtual(tensor)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Are the values of a tensor on the virtual GPU known?"""
        with self.operators.recorder.aside():
            return self.operators.twins.value(tensor) is not None

    def to_host(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A copy on the host: the known values, or zeros."""
        self.operators.note_read(tensor)
        with self.operators.recorder.aside():  # the copy itself has been noted
            result = _ToHost.apply(tensor, self.operators.twins.value(tensor))
        return result if dtype is None else result.to(dtype)  # type: ignore[no-any-return, no-untyped-call]

    def scalar(self, tensor: torch.Tensor) -> Any:
        self.operators.note_read(tensor)
        twins = self.operators.twins
        with self.operators.recorder.aside():
            known = twins.value(tensor)
            number = None if known is None else known.item()
        if number is not None:
            if twins.basis(tensor) is Basis.BOUND:
                self.operators.recorder.warn(FULL_MASK)
            return number
        if tensor.numel() != 1:
            raise RuntimeError(f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar")
        return True if tensor.dtype == torch.bool else Unknown(1.0)


class _ToHost(torch.autograd.Function):
    """`.cpu()` with a gradient: what comes back from the host is again on the virtual GPU."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, known: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG004
        return known.clone() if known is not None else torch.zeros(tensor.shape, dtype=tensor.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]  # noqa: ARG004
        return gradient.to(CUDA), None


def as_device(value: Any) -> torch.device | None:
    """Whatever torch takes for a device; an integer is a CUDA device."""
    if value is None or isinstance(value, torch.device):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return torch.device("cuda", value) if isinstance(value, int) else torch.device(value)


@handles(torch.device)
def _device_made(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    """A number alone is a device of the accelerator, which this build of torch does not have."""
    if len(args) == 1 and not kwargs and isinstance(args[0], int):
        return func("cuda", args[0])
    return func(*args, **kwargs)


# -- attributes -----------------------------------------------------------------------------------------------------------


@handles(torch.Tensor.device.__get__)
def _device(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return CUDA if mode.is_virtual(args[0]) else func(*args, **kwargs)


@handles(torch.Tensor.is_cuda.__get__)
def _is_cuda(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:  # noqa: ARG001
    return mode.is_virtual(args[0])


@handles(torch.Tensor.is_meta.__get__)
def _is_meta(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return bool(func(*args, **kwargs)) and not mode.is_virtual(args[0])


@handles(torch.Tensor.get_device)
def _get_device(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return 0 if mode.is_virtual(args[0]) else func(*args, **kwargs)


@handles(torch.Tensor.data_ptr)
def _data_ptr(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    if not mode.is_virtual(tensor):
        return func(*args, **kwargs)
    address = mode.operators.address(tensor.untyped_storage()._cdata)
    return address + tensor.storage_offset() * tensor.element_size()


@handles(torch.Tensor.is_pinned, torch.Tensor.is_shared)
def _is_pinned(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:  # noqa: ARG001
    return func is torch.Tensor.is_shared and mode.is_virtual(args[0])


@handles(torch.Tensor.pin_memory)
def _pin(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    mode.operators.pinned.add(args[0])
    return args[0]


@handles(torch.Tensor.share_memory_, torch.Tensor.record_stream)
def _same(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    return args[0]


# -- moving ---------------------------------------------------------------------------------------------------------------


@handles(torch.Tensor.to)
def _to(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensor, *rest = args
    target = kwargs.get("device", rest[0] if rest else None)
    if isinstance(target, torch.Tensor):
        device = CUDA if mode.is_virtual(target) else target.device
        rest = [device, target.dtype, *rest[1:]]
    else:
        device = as_device(target)
    if device is None:
        return func(*args, **kwargs)
    if device.type == "cpu":
        if not mode.is_virtual(tensor):
            return func(*args, **kwargs)
        dtype = kwargs.get("dtype", rest[1] if len(rest) > 1 and isinstance(rest[1], torch.dtype) else None)
        return mode.to_host(tensor, dtype)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": META}
    else:
        rest = [META, *rest[1:]]
    if device.type == "meta":
        return mode.on_meta(func, (tensor, *rest), kwargs)
    return func(tensor, *rest, **kwargs)


@handles(torch.Tensor.cuda)
def _cuda(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    return args[0].to(META, memory_format=kwargs.get("memory_format", torch.preserve_format))


@handles(torch.Tensor.cpu)
def _cpu(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return mode.to_host(args[0]) if mode.is_virtual(args[0]) else func(*args, **kwargs)


@handles(torch.Tensor.copy_)
def _copy(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    target, source = args[0], args[1] if len(args) > 1 else kwargs["src"]
    if not mode.is_virtual(target) and mode.is_virtual(source):
        values = mode.to_host(source)
        with mode.operators.recorder.aside():
            return func(target, values)
    return func(*args, **kwargs)


@handles(torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
def _tensor(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    device = as_device(kwargs.get("device"))
    if device is None and func in (torch.tensor, torch.asarray):
        device = mode.default_device
    if device is None and func is torch.Tensor.new_tensor and mode.is_virtual(args[0]):
        device, kwargs = CUDA, {"dtype": args[0].dtype, **kwargs}
    if device is None or device.type == "cpu":
        return func(*args, **kwargs)
    if device.type == "meta":
        return mode.on_meta(func, args, kwargs)
    gradient = kwargs.get("requires_grad", False)
    kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "requires_grad", "pin_memory")}
    data = args[1] if func is torch.Tensor.new_tensor else args[0] if args else kwargs.pop("data", None)
    if isinstance(data, torch.Tensor):
        moved = data if mode.is_virtual(data) and func is not torch.tensor else data.detach().clone()
        return moved.to(META, dtype=kwargs.get("dtype") or data.dtype).requires_grad_(gradient)
    real = torch.tensor(_plain_numbers(mode, data), dtype=kwargs.get("dtype"))
    return real.to(META).requires_grad_(gradient)


@handles(torch.Tensor.new)
def _new(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The old constructor does not know sparse meta tensors, which is how sparse optimizers make theirs."""
    if args[0].layout is torch.sparse_coo and len(args) > 1 and mode.is_virtual(args[0]):
        return torch.sparse_coo_tensor(*args[1:], **kwargs)
    return func(*args, **kwargs)


def _plain_numbers(mode: DeviceMode, data: Any) -> Any:
    """Lists may hold tensors of the virtual GPU; torch.tensor would read their values."""
    if isinstance(data, torch.Tensor):
        return float(mode.scalar(data)) if mode.is_virtual(data) else data
    return [_plain_numbers(mode, item) for item in data] if isinstance(data, list | tuple) else data


@handles(torch._has_compatible_shallow_copy_type)
def _compatible(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return True if any(mode.is_virtual(t) for t in args[:2]) else bool(func(*args, **kwargs))


@handles(torch.Tensor.data.__set__)
def _set_data(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    """`parameter.data = parameter.data.cuda()`, which is how modules move: the Parameter stays the same object."""
    tensor, value = args
    if tensor.is_meta == value.is_meta:
        return func(*args, **kwargs)
    fresh = value.detach().requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        fresh = torch.nn.Parameter(fresh, tensor.requires_grad)
    fresh.grad, tensor.grad = None, None
    torch._C._swap_tensor_impl(tensor, fresh)
    return None


@handles(torch.Tensor.__deepcopy__)
def _deepcopy(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensor, memo = args[0], args[1]
    if not mode.is_virtual(tensor):
        return func(*args, **kwargs)
    if id(tensor) in memo:
        return memo[id(tensor)]
    copied = tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, tensor.requires_grad)
    if tensor.grad is not None and not isinstance(tensor, torch.nn.Parameter):
        copied.grad = tensor.grad.detach().clone()
    memo[id(tensor)] = copied
    return copied


@handles(torch.Tensor.type)
def _type(mode: DeviceMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensor, *rest = args
    wanted = kwargs.get("dtype", rest[0] if rest else None)
    if wanted is None and mode.is_virtual(tensor):
        return torch.empty(0, dtype=tensor.dtype).type().replace("torch.", "torch.cuda.", 1)
    if isinstance(wanted, type) and wanted.__module__ == "torch.cuda":
        return tensor.to(META, wanted.dtype)  # type: ignore[attr-defined]
    if isinstance(wanted, str) and wanted.startswith("torch.cuda."):
        dtype = torch.empty(0).type(wanted.replace("torch.cuda.", "torch.")).dtype
        return tensor.to(META, dtype)
    return func(*args, **kwargs)
