"""What an operator asks of a GPU, whatever the GPU: arithmetic, bytes, and the shape of the product inside it.

`works_of` takes an Operator of a Trace and returns one `Work` for each kernel that matters. Everything here is counting;
how fast a GPU does it is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from tonnage.program.trace import DTYPE_BYTES, Attribute, Operator, TensorSpec

# Kinds of kernels that are modelled alike.
KINDS = (
    "product", "convolution", "convolution_data", "convolution_weight", "attention", "attention_backward", "recurrent",
    "recurrent_backward", "pointwise", "movement", "reduction", "normalisation", "normalisation_backward",
    "batch_normalisation", "batch_normalisation_backward", "cudnn_normalisation", "cudnn_normalisation_backward",
    "group_normalisation", "group_normalisation_backward", "softmax", "gather", "scatter", "window", "list", "sort", "fill",
)  # fmt: skip
_ARITHMETIC = {"float64": "fp64", "complex128": "fp64", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One kernel. Products have rows, columns and depth; everything else says how many results are independent of each
    other (rows x columns) and how many values each is made of (depth)."""

    kind: str
    name: str
    operations: float = 0.0
    fresh_bytes: float = 0.0  # of what is read, what the operator before has just written
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    arithmetic: str = "fp32"
    itemsize: int = 4
    rows: int = 1
    columns: int = 1
    depth: int = 1
    batch: int = 1
    launches: float = 1.0
    # What else decides about speed: transposed operands, images in channels-last, pieces that are not contiguous.
    first_transposed: bool = False
    second_transposed: bool = False
    channels_last: bool = False
    strided: bool = False
    window: int = 1  # elements of a convolution's or a pool's window
    groups: int = 1
    stride: int = 1
    dims: int = 1  # that are left of an elementwise operator's index once neighbours are merged
    images: int = 1  # of a convolution, and the side of a square image that has as many pixels as theirs
    side: float = 0.0

    @property
    def bytes(self) -> float:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Rules:
    """What the program allows its libraries."""

    matmul_tf32: bool = False
    cudnn_tf32: bool = True


Counter = Callable[[Operator, Rules], tuple[Work, ...]]
COUNTERS: dict[str, Counter] = {}


def counts(*names: str) -> Callable[[Counter], Counter]:
    """Registers a function for operators of `aten`."""

    def register(counter: Counter) -> Counter:
        COUNTERS.update({f"aten::{name}": counter for name in names})
        return counter

    return register


# -- reading operators ----------------------------------------------------------------------------------------------------


def stored_bytes(spec: TensorSpec) -> int:
    """Bytes that are really there: dimensions that are only expanded are not read twice."""
    if spec.layout == "strided":
        return prod(size for size, stride in zip(spec.shape, spec.strides, strict=True) if stride) * itemsize(spec)
    return spec.nbytes


def itemsize(spec: TensorSpec) -> int:
    return DTYPE_BYTES.get(spec.dtype, 4)


def tensors(operator: Operator) -> list[TensorSpec]:
    return [spec for spec in operator.inputs if spec is not None]


def arithmetic(spec: TensorSpec, tf32: bool) -> str:
    if spec.dtype in ("float32", "complex64"):
        return "tf32" if tf32 else "fp32"
    return _ARITHMETIC.get(spec.dtype, "fp32")


def is_transposed(spec: TensorSpec) -> bool:
    """Is a matrix (or a batch of them) stored column by column?"""
    return spec.layout == "strided" and len(spec.shape) >= 2 and spec.strides[-2] == 1 and spec.shape[-1] > 1


def numbers(value: Attribute, count: int) -> tuple[int, ...]:
    """An attribute that is one number or several, as several."""
    if isinstance(value, int | float):
        return (int(value),) * count
    if isinstance(value, tuple | list) and value:
        found = tuple(int(v) for v in value if isinstance(v, int | float))
        return found * count if len(found) == 1 else found
    return (1,) * count


def number(attributes: Mapping[str, Attribute], name: str, default: int) -> int:
    value = attributes.get(name, default)
    return int(value) if isinstance(value, int | float) else default


def flag(attributes: Mapping[str, Attribute], name: str) -> bool:
    return attributes.get(name) is True
