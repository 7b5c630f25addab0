"""The temporary memory of cuDNN convolutions: one workspace per kernel, and copies of operands in the wrong layout.

cuDNN's tensor-core kernels read NHWC. Operands in NCHW are converted inside the workspace, channels padded to whole
loads; weight gradients add partial sums in fp32. Which kernel cuDNN picks is its own decision: the thresholds at the
top were read off benchmarks/workspace/results (H200, torch 2.11, cuDNN 9.19); benchmarks/workspace/fit.py prints the
residuals. A transposed convolution is the data gradient of a plain one: all is said in terms of the plain one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, prod

from tonnage.hardware.gpu import Gpu
from tonnage.program.trace import DTYPE_BYTES, Attribute, Operator, TensorSpec

# Measured, not derived. A "reduction" is the length of one output's dot product: channels times taps of the kernel.
VECTOR_BYTES = 16  # channels are padded to whole loads of this size: 8 in half precision, 4 in fp32
DIRECT_CHANNELS, DIRECT_DILATION = 12, 2  # forward: with so few channels and so little dilation, and a
DIRECT_REDUCTION = 128  # reduction up to this, kernels read NCHW as it is
DIRECT_DATA_CHANNELS, DIRECT_DATA_REDUCTION = 8, 128  # the same for the data gradient (fp32 only), either one suffices
DIRECT_WEIGHT_REDUCTION = 64  # the same for the weight gradient (fp32 only)
IN_PLACE_CHANNELS, IN_PLACE_OUTPUTS = range(16, 97), range(128, 321)  # fp32 forward that writes its output as NCHW
IN_PLACE_POINTWISE_CHANNELS, IN_PLACE_POINTWISE_PIXELS = 256, 25000  # the same with one tap
NCHW_TAPS, NCHW_WEIGHT_CHANNELS = 49, 24  # fp32 kernels that exist in NCHW only
STRIDED_POINTWISE_CHANNELS = 64  # forward kernels of one tap with a stride: up to so many channels, no conversion
WIDE_PIXELS, NARROW = 12544, 32  # fp32 weight gradient of one tap on large images, with few channels and a small batch
HALF_CHUNK, FP32_CHUNK = 8192, 1024  # pixels of the batch below which a weight gradient's reduction is not split again
TILE, SMALL_TILE = 128, 64  # channels on a side of a weight gradient's tile; the small one where there are no more
HALF_SHARE = 10 / 11  # half-precision weight gradients split for this share of the multiprocessors
DEPTHWISE_PADDING = 4  # channels per group to which cuDNN pads a depthwise convolution that it has no kernel for
DEPTHWISE_SUMS = 8  # partial sums per image of a depthwise weight gradient in NHWC
GROUP_RATIO, GROUP_WIDTH = 6, 128  # groups of C and K channels, C / K up to this ratio, are padded to one power of two
FFT_SIDES = (16, 32, 64, 128, 256)  # transforms of whole images that `benchmark` tries in fp32; 256 is cuDNN's limit
FFT_WEIGHT_SIDE, FFT_WEIGHT_TAPS = 64, 16  # the largest transform and kernel for which a weight gradient is tried so
FFT_TILE_BYTES, FFT_TILE = 32 * 17 * 8, 32  # the data gradient: transforms of tiles of 32 x 32, halved by symmetry

_HALVES = ("float16", "bfloat16")


def convolution_workspace(
    operator: Operator, gpu: Gpu, *, benchmark: bool = False, allow_tf32: bool = True
) -> tuple[int, ...]:
    """Sizes of the blocks that one call allocates and frees: copies of its operands, then the workspace.

    With `benchmark`, what the fastest kernel takes; the first call first allocates `convolution_trial` too.
    """
    problem = _problem(operator, benchmark)
    if problem is None:
        return ()
    sizes = [_workspace(problem, kind, gpu, allow_tf32) for kind in _kinds(operator, problem)]
    if len(sizes) == 2:
        # The data gradient runs first; the weight's gradient, allocated after it, takes a part of the room it leaves.
        sizes[0] -= problem.weight_bytes
    workspace = max(0, *sizes) if sizes else 0
    return tuple(size for size in (*_copies(operator, problem), workspace) if size)


@dataclass(frozen=True, slots=True)
class Trial:
    """What `benchmark` adds to the first call of a thread with this `key`.

    torch allocates one block for the largest kernel that it tries, frees it, and empties the cache; then comes the
    workspace of the fastest. Kernels that do not fit into the free memory are left out.
    """

    key: Hashable
    nbytes: int


def convolution_trial(operator: Operator, gpu: Gpu, *, allow_tf32: bool = True) -> Trial | None:
    """The trial before the first call with `benchmark`; `None` if cuDNN is not asked or nothing is computed."""
    problem = _problem(operator, True)
    kinds = _kinds(operator, problem) if problem is not None else []
    if problem is None or not kinds or (problem.groups == problem.c > 1 and not problem.channels_last):
        return None  # torch's own depthwise kernels are not tried
    size = max(max(_workspace(problem, kind, gpu, allow_tf32), _largest_trial(problem, kind)) for kind in kinds)
    return Trial((tuple(kinds), problem), size)


class _Kind(Enum):
    FORWARD = "forward"
    DATA = "data gradient"
    WEIGHT = "weight gradient"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """A plain convolution of C channels to K; of a transposed one, input and output have changed places."""

    batch: int
    c: int
    k: int
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int
    dilation: int
    groups: int
    dtype: str
    channels_last: bool
    transposed: bool = field(compare=False)
    tuned: bool  # torch has measured which kernel is the fastest

    @property
    def itemsize(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def half(self) -> bool:
        return self.dtype in _HALVES

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def weights(self) -> int:
        return self.k * self.c // self.groups * self.taps

    @property
    def weight_bytes(self) -> int:
        return self.weights * self.itemsize

    def input_bytes(self, channels: int | None = None) -> int:
        return self.batch * (channels or self.c) * prod(self.input_shape) * self.itemsize

    def output_bytes(self, channels: int | None = None) -> int:
        return self.batch * (channels or self.k) * prod(self.output_shape) * self.itemsize


def _workspace(problem: _Problem, kind: _Kind, gpu: Gpu, allow_tf32: bool) -> int:
    if gpu.vendor.upper() != "NVIDIA":
        return 0  # MIOpen was not measured
    if problem.groups > 1 and problem.groups == problem.c:
        return _depthwise(problem, kind)
    if not _on_tensor_cores(problem, gpu, allow_tf32):
        # Not measured: these kernels read NCHW as it is, so that only the partial sums of weight gradients are left.
        return _partial_sums(problem, gpu) if kind is _Kind.WEIGHT else 0
    if problem.groups > 1:
        return _grouped(problem, kind, gpu)
    if problem.taps == 1:
        return _pointwise(problem, kind, gpu)
    return _spatial(problem, kind, gpu)


def _on_tensor_cores(problem: _Problem, gpu: Gpu, allow_tf32: bool) -> bool:
    """Volta and Turing multiply half precision there, Ampere and later also fp32 as TF32."""
    capability = float(gpu.compute_capability)
    return capability >= (8.0 if problem.dtype == "bfloat16" or not problem.half else 7.0) and (
        problem.half or (problem.dtype == "float32" and allow_tf32)
    )


# -- kernels ----------------------------------------------------------------------------------------------------------


def _spatial(problem: _Problem, kind: _Kind, gpu: Gpu) -> int:
    """Kernels of more than one tap: operands converted to NHWC, unless a direct kernel takes NCHW."""
    direct = _direct(problem, kind)
    if direct and (not problem.channels_last or kind is _Kind.WEIGHT):
        return 0
    sums = _partial_sums(problem, gpu) if kind is _Kind.WEIGHT else 0
    if problem.channels_last and not problem.half and (direct or _only_in_nchw(problem, kind)):
        output = 0 if kind is _Kind.FORWARD else problem.output_bytes()  # the forward kernel writes NHWC itself
        return problem.input_bytes() + problem.weight_bytes + output + sums
    return _converted(problem, kind) + sums


def _only_in_nchw(problem: _Problem, kind: _Kind) -> bool:
    """fp32 kernels that cuDNN lacks in NHWC, so that operands are converted the other way."""
    narrow = kind is _Kind.WEIGHT and min(problem.c, problem.k) <= NCHW_WEIGHT_CHANNELS
    return narrow or (kind is not _Kind.DATA and problem.taps >= NCHW_TAPS)


def _direct(problem: _Problem, kind: _Kind) -> bool:
    """Whether cuDNN has a kernel that reads NCHW as it is."""
    taps, few = problem.taps, problem.dilation <= DIRECT_DILATION
    if kind is _Kind.FORWARD:
        patches = problem.stride == problem.kernel[0] and problem.c <= 4 and problem.dtype != "bfloat16"
        return patches or (few and problem.c <= DIRECT_CHANNELS and problem.c * taps <= DIRECT_REDUCTION)
    if problem.half:
        return False
    if kind is _Kind.DATA:
        return problem.c <= DIRECT_DATA_CHANNELS or (few and problem.k * taps <= DIRECT_DATA_REDUCTION)
    return few and problem.c * taps <= DIRECT_WEIGHT_REDUCTION


def _converted(problem: _Problem, kind: _Kind) -> int:
    """Operands in NHWC. Those that are in NHWC already are only copied where their channels need padding."""
    vector = _vector(problem, kind)
    c, k = _round_up(problem.c, vector), _round_up(problem.k, vector)
    if problem.channels_last:
        size = (problem.input_bytes(c) if c > problem.c else 0) + (problem.output_bytes(k) if k > problem.k else 0)
        return size + (problem.weight_bytes * c * k // (problem.c * problem.k) if size else 0)
    in_place = kind is _Kind.FORWARD and not problem.half and not problem.tuned and _writes_nchw(problem)
    output = 0 if in_place else problem.output_bytes(k)
    weight = 0 if problem.taps == 1 else problem.weight_bytes * c * k // (problem.c * problem.k)
    return problem.input_bytes(c) + weight + output


def _vector(problem: _Problem, kind: _Kind) -> int:
    """To what the channels are padded. The 7 x 7 convolution of an image has kernels of its own, with less padding."""
    image = problem.c <= 4 and problem.stride > 1 and problem.kernel == (7, 7)
    if problem.dtype == "float32" and image and kind is _Kind.FORWARD:
        return 1
    if problem.dtype == "float16" and (kind is _Kind.FORWARD or (image and kind is _Kind.WEIGHT)):
        return VECTOR_BYTES // problem.itemsize // 2
    return VECTOR_BYTES // problem.itemsize


def _writes_nchw(problem: _Problem) -> bool:
    """fp32 forward kernels that convert their input but not their output."""
    if problem.taps == 1:
        large = problem.batch * prod(problem.output_shape) >= IN_PLACE_POINTWISE_PIXELS
        return large and problem.c <= IN_PLACE_POINTWISE_CHANNELS
    sides = min(problem.kernel) >= 3 or problem.k == IN_PLACE_OUTPUTS.start
    return sides and problem.c in IN_PLACE_CHANNELS and problem.k in IN_PLACE_OUTPUTS


def _pointwise(problem: _Problem, kind: _Kind, gpu: Gpu) -> int:
    """Kernels of one tap are matrix products, of NCHW as it is where a row of pixels is a whole number of loads."""
    sums = _partial_sums(problem, gpu) if kind is _Kind.WEIGHT else 0
    converted = _converted(problem, kind) + sums
    pixels = prod(problem.output_shape)
    if kind is _Kind.FORWARD and problem.stride > 1 and problem.c <= STRIDED_POINTWISE_CHANNELS:
        return 0
    if problem.channels_last or problem.stride > 1 or pixels % 4:
        return converted
    if kind is _Kind.WEIGHT and _too_narrow(problem, pixels):
        return converted
    # One product per image; the weight gradient then adds up one fp32 result per image.
    return min(problem.batch * problem.weights * 4, converted) if kind is _Kind.WEIGHT else 0


def _too_narrow(problem: _Problem, pixels: int) -> bool:
    """Weight gradients of one tap for which cuDNN does not take one product per image."""
    if problem.half:
        return problem.c <= DIRECT_CHANNELS
    return pixels >= WIDE_PIXELS and max(problem.batch, min(problem.c, problem.k)) <= NARROW


def _grouped(problem: _Problem, kind: _Kind, gpu: Gpu) -> int:
    c, k = problem.c // problem.groups, problem.k // problem.groups
    wide = 1 << (max(c, k, DEPTHWISE_PADDING) - 1).bit_length()
    sums = _partial_sums(problem, gpu) if kind is _Kind.WEIGHT else 0
    if max(c, k) <= GROUP_RATIO * min(c, k) and (c, k) != (wide, wide) and wide <= GROUP_WIDTH:
        channels = wide * problem.groups
        return problem.input_bytes(channels) + problem.output_bytes(channels) + problem.weight_bytes + sums
    if problem.channels_last and c == k:
        return sums
    return problem.input_bytes() + problem.output_bytes() + problem.weight_bytes + sums


def _depthwise(problem: _Problem, kind: _Kind) -> int:
    """torch's own kernels need nothing. cuDNN runs in NHWC, and for some weight gradients of fp16."""
    both = problem.input_bytes() + problem.output_bytes()
    plain = problem.stride == 1 and set(problem.kernel) == {3}
    if not problem.channels_last:
        converted = kind is _Kind.WEIGHT and problem.dtype == "float16" and plain and problem.dilation == 1
        return both if converted else 0
    if problem.half:
        if kind is _Kind.WEIGHT and set(problem.kernel) == {7}:
            return problem.batch * DEPTHWISE_SUMS * problem.weights * 4
        return DEPTHWISE_PADDING * both if kind is _Kind.DATA and plain and len(problem.kernel) == 3 else 0
    known = len(problem.kernel) == 2 and problem.dilation == 1 and set(problem.kernel) <= {3, 5}
    return DEPTHWISE_PADDING * both if kind is _Kind.WEIGHT and not known else 0


def _partial_sums(problem: _Problem, gpu: Gpu) -> int:
    """The fp32 results of a weight gradient whose reduction is split so that every multiprocessor has a tile.

    A tile is one tap of some output channels times some input channels. With fewer tiles than half the multiprocessors,
    each part of the batch has its own copy of the gradient; with more, parts of single tiles wait to be added.
    """
    rows, columns = problem.k, problem.c // problem.groups
    height, width = (SMALL_TILE if side <= SMALL_TILE else TILE for side in (rows, columns))
    tiles = ceil(rows / height) * ceil(columns / width) * problem.taps
    chunks = problem.batch * prod(problem.output_shape) // (HALF_CHUNK if problem.half else FP32_CHUNK)
    workers = round(gpu.sms * HALF_SHARE) if problem.half else gpu.sms
    if chunks < 2 or tiles > 2 * workers:
        return 0
    splits = min(workers // tiles, chunks)
    if splits > 1:
        return splits * problem.weights * 4
    waiting = workers // 2 if tiles <= workers else workers
    return min(problem.weights, waiting * height * width) * 4


def _largest_trial(problem: _Problem, kind: _Kind) -> int:
    """The largest kernel that `benchmark` tries: Fourier transforms, seen for images in fp32 and NCHW only.

    A transform turns convolution into products of transformed images and filters, all of which are in the workspace.
    """
    plain = len(problem.kernel) == 2 and problem.dilation == 1 and problem.groups == 1
    if not plain or problem.dtype != "float32" or problem.channels_last:
        return 0
    pairs, batch = problem.c * problem.k, problem.batch
    if kind is _Kind.DATA:
        return _tiled_transforms(problem)
    side = max(problem.input_shape) + max(problem.kernel) - 1
    transform = next((fft * (fft // 2 + 1) * 16 for fft in FFT_SIDES if fft >= side), 0)
    if problem.stride > 1 or not transform:
        return 0
    if kind is _Kind.FORWARD:
        return transform * (pairs + batch * problem.c)
    if side > FFT_WEIGHT_SIDE or problem.taps > FFT_WEIGHT_TAPS:
        return 0
    return max(transform * pairs + problem.output_bytes(), transform * batch * (problem.c + problem.k))


def _tiled_transforms(problem: _Problem) -> int:
    """A data gradient with stride 2, as one transform for each of the four phases; or one of a single pixel."""
    phases, pairs = problem.stride**2, problem.c * problem.k
    side = max(problem.output_shape)
    if side == 1 and problem.k >= SMALL_TILE:
        return FFT_TILE_BYTES * (pairs + problem.batch * (problem.c + problem.k))
    if problem.stride != 2 or min(problem.kernel) < 3 or side > FFT_TILE:
        return 0
    tiles = 1 if side + max(problem.kernel) - 1 <= FFT_TILE else 2
    images = problem.batch * FFT_TILE_BYTES * (phases * problem.c + problem.k) * tiles
    return phases * FFT_TILE_BYTES * pairs + images + problem.input_bytes() + problem.output_bytes()


# -- reading the operator ---------------------------------------------------------------------------------------------


def _problem(operator: Operator, tuned: bool = False) -> _Problem | None:
    """The convolution behind an operator; `None` if it is empty or of a dtype that cuDNN does not take."""
    source, weight, result = _operands(operator)
    if source.numel == 0 or result.numel == 0 or source.dtype not in (*_HALVES, "float32", "float64"):
        return None
    transposed = bool(operator.attributes.get("transposed", False))
    big, small = (result, source) if transposed else (source, result)
    return _Problem(
        batch=source.shape[0], c=big.shape[1], k=small.shape[1],
        input_shape=big.shape[2:], output_shape=small.shape[2:], kernel=weight.shape[2:],
        stride=max(_integers(operator, "stride")), dilation=max(_integers(operator, "dilation")),
        groups=_integers(operator, "groups")[0], dtype=source.dtype, transposed=transposed, tuned=tuned,
        channels_last=len(source.shape) > 3 and "channels_last" in (source.layout, weight.layout),
    )  # fmt: skip


def _operands(operator: Operator) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Input, weight and output; of a backward call, the gradient stands for the output."""
    if operator.name == "aten::convolution_backward":
        gradient, source, weight = operator.inputs[:3]
    else:
        source, weight = operator.inputs[:2]
        gradient = operator.outputs[0]
    if source is None or weight is None or gradient is None:
        raise ValueError(f"{operator.name} lacks a tensor: {operator.inputs}")
    return source, weight, gradient


def _kinds(operator: Operator, problem: _Problem) -> list[_Kind]:
    """What the call computes, in order."""
    if operator.name == "aten::convolution":
        return [_Kind.DATA if problem.transposed else _Kind.FORWARD]
    mask = _values(operator.attributes.get("output_mask", (True, True, False)))
    data = [_Kind.FORWARD if problem.transposed else _Kind.DATA] if mask[0] else []
    return data + ([_Kind.WEIGHT] if mask[1] else [])


def _copies(operator: Operator, problem: _Problem) -> Iterator[int]:
    """torch copies what is not in the layout of the call: channels last if the input or the weight is."""
    specs = operator.inputs[:3] if operator.name == "aten::convolution_backward" else operator.inputs[:2]
    wanted = "channels_last" if problem.channels_last else "contiguous"
    for spec in specs:
        if spec is not None and spec.layout != wanted and not (spec.layout != "strided" and _same_in_both(spec)):
            yield spec.nbytes


def _same_in_both(spec: TensorSpec) -> bool:
    return spec.shape[1] == 1 or prod(spec.shape[2:]) == 1


def _integers(operator: Operator, name: str) -> tuple[int, ...]:
    values = _values(operator.attributes.get(name, 1))
    return tuple(int(value) for value in values if isinstance(value, int)) or (1,)


def _values(attribute: Attribute) -> Sequence[Attribute]:
    return attribute if isinstance(attribute, Sequence) and not isinstance(attribute, str) else (attribute,)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
