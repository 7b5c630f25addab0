"""What one step of a program asks for, as the few numbers of which time, memory and energy are linear functions.

`Features` do not depend on a GPU. `variables_on` divides their work by the rates of a GPU: multiply-adds become the
seconds that they would take at its peak, bytes the seconds at its bandwidth. So rows of several GPUs fit one regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from tonnage.errors import UsageError
from tonnage.hardware import Gpu

KINDS = ("attention", "recurrent", "convolution", "dense")  # of networks: the first that has a layer of its kind
# All are sums over one step, of one GPU.
COUNTS = (
    "convolution_multiply_adds", "dense_multiply_adds", "attention_multiply_adds", "recurrent_multiply_adds",
    "layer_bytes",  # written by the layers of the forward pass
    "parameters", "parameter_tensors", "state_bytes",  # state is that of the optimizer
    "optimizer_bytes", "optimizer_tensor_calls",  # read and written by it; tensors of all its calls
    "h2d_bytes", "d2h_bytes", "mapped_bytes",  # the last: of large copies to the host
    "operator_calls", "recurrent_positions",  # what the host launches
)  # fmt: skip

HOST_VARIABLES = (
    "operator_calls", "recurrent_positions", "parameter_tensors", "optimizer_tensor_calls", "h2d_seconds",
    "d2h_seconds", "mapped_bytes", "constant",
)  # fmt: skip
DEVICE_VARIABLES = (
    "convolution_seconds", "dense_seconds", "attention_seconds", "recurrent_seconds", "layer_seconds",
    "parameter_seconds", "optimizer_seconds", "h2d_seconds", "d2h_seconds", "mapped_bytes", "operator_calls",
    "recurrent_positions", "constant",
)  # fmt: skip
MEMORY_VARIABLES = ("parameter_bytes", "state_bytes", "layer_bytes", "h2d_bytes", "constant")
VARIABLES = tuple(dict.fromkeys((*HOST_VARIABLES, *DEVICE_VARIABLES, *MEMORY_VARIABLES)))

# cuDNN keeps a hidden state up to this width on the chip and launches once for all positions; beyond it, it launches
# at each. Measured on an H200: 125 is fused, 129 is not.
FUSED_HIDDEN = 128

# The C library maps new pages for each block above this size (DEFAULT_MMAP_THRESHOLD_MAX of glibc), so a copy to pageable
# memory of the host touches fresh pages every time. Measured: 0.6 ms a MB instead of 0.1.
MAPPED_FROM_BYTES = 32 << 20

# cuDNN may use TF32 as torch is set; matrix products may not.
_RATES = {"float32": ("tf32", "fp32"), "bfloat16": ("bf16", "bf16"), "float16": ("fp16", "fp16")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The work of one step; `counts` has a number for each of `COUNTS`."""

    kind: str
    mode: str
    precision: str
    batch: int = 1
    counts: Mapping[str, float] = field(hash=False)

    def __post_init__(self) -> None:
        if self.precision not in _RATES:
            raise UsageError(f"precision must be one of {', '.join(_RATES)}, not {self.precision!r}")
        for name in COUNTS:
            value = self.counts.get(name)
            if value is None or not isfinite(value) or value < 0:
                raise UsageError(f"{name} must be a number that is not negative, not {value}")


def kind_of(layer_kinds: Mapping[str, float]) -> str:
    """The kind of a network from how many layers it has of each kind."""
    return next((kind for kind in KINDS if layer_kinds.get(kind)), "dense")


def variables_on(features: Features, gpu: Gpu) -> dict[str, float]:
    """The variables of the regression: work over the rates of this GPU, and counts as they are."""
    counts, (library_rate, product_rate) = features.counts, _RATES[features.precision]
    multiply_adds = {
        "convolution": library_rate,
        "recurrent": library_rate,
        "dense": product_rate,
        "attention": product_rate,
    }
    seconds = {
        f"{kind}_seconds": 2 * counts[f"{kind}_multiply_adds"] / (1e12 * gpu.peak_tflops(rate))
        for kind, rate in multiply_adds.items()
    }
    moved = {
        "layer_seconds": counts["layer_bytes"],
        "parameter_seconds": 4 * counts["parameters"],
        "optimizer_seconds": counts["optimizer_bytes"],
    }
    seconds |= {name: amount / gpu.bandwidth_bytes_second for name, amount in moved.items()}
    seconds |= {f"{way}_seconds": counts[f"{way}_bytes"] / gpu.pcie_bytes_second for way in ("h2d", "d2h")}
    plain = {name: float(counts[name]) for name in COUNTS if name in VARIABLES}
    return {**seconds, **plain, "parameter_bytes": 4.0 * counts["parameters"], "constant": 1.0}
