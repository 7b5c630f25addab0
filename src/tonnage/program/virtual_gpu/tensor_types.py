"""`torch.cuda.FloatTensor` and its brothers, which a CPU build of torch only has as types that refuse to work."""

from __future__ import annotations

from typing import Any

import torch

from tonnage.program.virtual_gpu.device import DeviceMode

_DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64,
    "Bool": torch.bool,
}  # fmt: skip


class CudaTensorType(type):
    """Makes tensors when called, and is the type of tensors on the GPU when asked."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ARG002
        if all(isinstance(size, int) for size in args):
            return torch.empty(args, dtype=cls.dtype, device="cuda")
        if len(args) == 1 and isinstance(args[0], torch.Size):
            return torch.empty(args[0], dtype=cls.dtype, device="cuda")
        return torch.as_tensor(args[0], dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype


def install(mode: DeviceMode) -> None:
    types = {f"{name}Tensor": CudaTensorType(f"{name}Tensor", (), {"dtype": dtype}) for name, dtype in _DTYPES.items()}
    for name, made in types.items():
        made.__module__ = "torch.cuda"
        setattr(torch.cuda, name, made)
    original = torch.set_default_tensor_type

    def set_default_tensor_type(wanted: Any) -> None:
        text = wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__name__}"
        if not text.startswith("torch.cuda."):
            mode.set_default_device("cpu")
            original(wanted)
            return
        mode.set_default_device("cuda")
        dtype = types[text.rpartition(".")[2]].dtype
        if dtype.is_floating_point:
            torch.set_default_dtype(dtype)

    torch.set_default_tensor_type = set_default_tensor_type
