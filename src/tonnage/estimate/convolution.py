"""The temporary memory of cuDNN convolutions: one workspace per kernel, and copies of operands in the wrong layout.

cuDNN's tensor-core kernels read NHWC. Operands in NCHW are converted inside the workspace, channels padded to whole vectors;
weight gradients add partial sums in fp32. Which kernel cuDNN picks is its own decision: the thresholds in `_TABLE` were read
off benchmarks/workspace/results (H200, torch 2.11, cuDNN 9.19); `python benchmarks/workspace/fit.py` prints the residuals.
A transposed convolution is the data gradient of a plain one, so everything below is said in terms of the plain one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import Final

from tonnage.hardware.gpu import Gpu
from tonnage.program.trace import Attribute, Operator, TensorSpec

FORWARD, DATA, WEIGHT = "forward", "data gradient", "weight gradient"
_SWAPPED = {FORWARD: DATA, DATA: FORWARD, WEIGHT: WEIGHT}
_HALVES = ("float16", "bfloat16")

# Everything that was measured rather than derived. "Reduction" is the length of one output's dot product: channels x taps.
_TABLE: Final = {
    "vector": {2: 8, 4: 4},  # channels of one 16-byte load, by element size
    "direct_reduction": {2: 128, 4: 256},  # forward: up to this, and with few channels, kernels read NCHW as it is
    "direct_channels": {2: 12, 4: 12},
    "direct_dilation": 2,
    "direct_data_channels": 8,  # fp32 data gradient: up to so many input channels, or up to this reduction, no conversion
    "direct_data_reduction": 128,
    "direct_weight_reduction": 64,  # fp32 weight gradient, the same
    "in_place_output": (96, 128, 320),  # fp32 forward with C <= 96, 128 <= K <= 320: the output is written as NCHW
    "tile": 128,  # a weight gradient is computed in tiles of 128 x 128 fp32 sums
    "depthwise_padding": 4,  # channels per group to which cuDNN pads a depthwise convolution that it cannot do directly
    "fft_tiles": (16, 256),  # sides of the transforms that `benchmark` tries; 16, 32 and 64 were seen
    "strided_trial": 2500,  # bytes per weight of the largest strided gradient that `benchmark` tries
}


def convolution_workspace(
    operator: Operator, gpu: Gpu, *, benchmark: bool = False, allow_tf32: bool = True
) -> tuple[int, ...]:
    """Sizes of the blocks that one call allocates and frees: copies of its operands, then the workspace."""
    problem = _problem(operator)
    if problem is None:
        return ()
    copies = tuple(_copies(operator, problem))
    kinds = _kinds(operator, problem)
    sizes = {kind: _workspace(problem, kind, gpu, benchmark, allow_tf32) for kind in kinds}
    if DATA in sizes and WEIGHT in sizes:
        # The data gradient runs first, before the weight's gradient has been allocated: its workspace may use that room.
        first = FORWARD if problem.transposed else DATA
        sizes[first] = max(0, sizes.get(first, 0) - problem.weight_bytes)
    workspace = max(sizes.values(), default=0)
    return (*copies, workspace) if workspace else copies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """A convolution as cuDNN sees it: C channels in, K out; of a transposed one, input and output change places."""

    batch: int
    channels_in: int
    channels_out: int
    pixels_in: int
    pixels_out: int
    side_in: int
    taps: int
    dims: int
    stride: int
    dilation: int
    groups: int
    itemsize: int
    dtype: str
    channels_last: bool
    transposed: bool

    @property
    def input_bytes(self) -> int:
        return self.batch * self.channels_in * self.pixels_in * self.itemsize

    @property
    def output_bytes(self) -> int:
        return self.batch * self.channels_out * self.pixels_out * self.itemsize

    @property
    def weights(self) -> int:
        return self.channels_out * self.channels_in // self.groups * self.taps

    @property
    def weight_bytes(self) -> int:
        return self.weights * self.itemsize

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.channels_in
