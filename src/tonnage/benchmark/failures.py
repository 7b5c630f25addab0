"""What went wrong while measuring, in one line."""

from __future__ import annotations

import torch

# Memory that torch's own allocator does not give: that of libraries, and that of the host.
_OUT_OF_MEMORY = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Was there too little memory, of the device or of the host?"""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def short_reason(error: BaseException) -> str:
    """An error in one line. What torch says about memory goes on about settings: how much was wanted is enough."""
    text = " ".join(str(error).split())
    if isinstance(error, torch.OutOfMemoryError):
        return ". ".join(text.split(". ")[:3]).removesuffix(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
