"""The temporary memory of cuDNN convolutions: one workspace per kernel, and copies of operands in the wrong layout.

cuDNN's tensor-core kernels read NHWC. Operands in NCHW are converted inside the workspace, channels padded to whole
loads; weight gradients add partial sums in fp32. Which kernel cuDNN picks is its own decision: the thresholds at the
top were read off benchmarks/workspace/results (H200, torch 2.11, cuDNN 9.19); benchmarks/workspace/fit.py prints what
is left. Forward kernels and data gradients sometimes take another 2 to 16 MiB, by no rule that held on new shapes.
A transposed convolution is the data gradient of a plain one: all is said in terms of the plain one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, prod

from tonnage.hardware.gpu import Gpu
from tonnage.program.trace import DTYPE_BYTES, Attribute, Operator, TensorSpec

# Measured, not derived. A "reduction" is the length of one output's dot product: channels times taps of the kernel.
VECTOR_BYTES = 16  # channels are padded to whole loads of this size: 8 in half precision, 4 in fp32
DIRECT_CHANNELS, DIRECT_DILATION, DIRECT_REDUCTION = 12, 2, 128  # forward: up to these, kernels read NCHW as it is
DIRECT_DATA_CHANNELS, DIRECT_DATA_REDUCTION = 8, 128  # the same for the data gradient (fp32 only), either one suffices
DIRECT_WEIGHT_REDUCTION = 64  # the same for the weight gradient (fp32 only)
IN_PLACE_CHANNELS, IN_PLACE_OUTPUTS = range(16, 97), range(128, 321)  # fp32 forward that writes its output as NCHW
IN_PLACE_POINTWISE_CHANNELS, IN_PLACE_POINTWISE_PIXELS = 256, 25000  # the same with one tap
NCHW_TAPS, NCHW_WEIGHT_CHANNELS = 49, 24  # fp32 kernels that exist in NCHW only
STRIDED_CHANNELS, STRIDED_DATA_CHANNELS = 64, 128  # kernels of one tap with a stride: up to so many, no conversion
WIDE_PIXELS, NARROW = 12544, 32  # fp32 weight gradient of one tap on large images, with few channels and a small batch
WIDEST_PIXELS, LESS_NARROW = 65536, 64  # the same on larger images, with any batch
HALF_CHUNK, FP32_CHUNK = 8192, 1024  # pixels of the batch below which a weight gradient's reduction is not split again
POINTWISE_HALF_CHUNK = 4096  # the same with one tap; fp32 as above
TILE, SMALL_TILE = 128, 64  # channels on a side of a weight gradient's tile; the small one where there are no more
HALF_SHARE = 10 / 11  # of the multiprocessors that half-precision weight gradients split for
FULL = 0.9  # a last wave of tiles that occupies this share of the multiprocessors is not split
WAITING_CHANNELS, WAITING_OUTPUTS, WAITING_TAPS = 128, range(96, 257), range(9, 26)  # fp32 forward with waiting tiles
WAITING_PIXELS, WAITING_MOST_PIXELS, WAITING_WIDE = 4096, 10000, 193  # from; up to, with so many outputs or more
WAITING_TILES, FEW_WAITING_TILES, DEEP_CHANNELS = 112, 96, 256  # how many wait, from so many channels and below
TUNED_BATCH = 32  # cuDNN's kernels for well-known networks serve multiples of this batch
PAIR_CHANNELS, PAIR_PIXELS = 256, 50000  # half-precision weight gradients of this size take two tiles at a time
WINOGRAD_PAIRS, WINOGRAD_PIXELS, WINOGRAD_COVER, WINOGRAD_CHANNELS = 74000, 8192, 1.2, 10  # limits of such kernels
DEPTHWISE_PADDING = 4  # channels per group to which cuDNN pads a depthwise convolution that it has no kernel for
DEPTHWISE_SUMS, DEPTHWISE_SMALL_PIXELS = 8, 784  # partial sums per image of one in NHWC; with 3 x 3 taps if so small
DEPTHWISE_FP16_CHANNELS, DEPTHWISE_LARGE_PIXELS = 320, 3000  # converted weight gradients: NCHW up to, NHWC from
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
    # Of a call for both gradients the larger one: they run one after the other.
    workspace = max((_workspace(problem, kind, gpu, allow_tf32) for kind in _kinds(operator)), default=0)
    return tuple(size for size in (*_copies(operator, problem), workspace) if size)


@dataclass(frozen=True, slots=True)
class Trial:
    """What `benchmark` adds to a thread's first call with this `key`: a block for the largest kernel that torch tries.

    It is freed and the cache emptied before the workspace of the fastest. If it does not fit, torch takes half of it.
    """

    key: Hashable
    nbytes: int


def convolution_trial(operator: Operator, gpu: Gpu, *, allow_tf32: bool = True) -> Trial | None:
    """The trial before the first call with `benchmark`; `None` if cuDNN is not asked or nothing is computed."""
    problem, kinds = _problem(operator, True), _kinds(operator)
    if problem is None or not kinds or gpu.vendor.upper() != "NVIDIA" or problem.by_torch:
        return None
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
    tuned: bool  # torch has measured which kernel is the fastest

    @property
    def itemsize(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def half(self) -> bool:
        return self.dtype in _HALVES

    @property
    def by_torch(self) -> bool:  # depthwise, for which torch has kernels of its own
        return self.groups == self.c > 1 and not self.channels_last

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
    if problem.groups == problem.c > 1:
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
    least = 7.0 if problem.dtype == "float16" else 8.0
    possible = problem.half or (problem.dtype == "float32" and allow_tf32)
    return possible and float(gpu.compute_capability) >= least


def _spatial(problem: _Problem, kind: _Kind, gpu: Gpu) -> int:
    """Kernels of more than one tap: operands converted to NHWC, unless a direct kernel takes NCHW."""
    if kind is not _Kind.FORWARD and problem.kernel == problem.input_shape and prod(problem.output_shape) == 1:
        return 0  # one window over the whole image: gradients are plain matrix products
    direct = _direct(problem, kind)
    if direct and (not problem.channels_last or kind is _Kind.WEIGHT):
        return 0
    sums = _partial_sums(problem, gpu) if kind is _Kind.WEIGHT else 0
    if kind is _Kind.WEIGHT and (size := _winograd(problem)):
        return size
    narrow = kind is _Kind.WEIGHT and min(problem.c, problem.k) <= NCHW_WEIGHT_CHANNELS
    only_in_nchw = direct or narrow or (kind is not _Kind.DATA and problem.taps >= NCHW_TAPS)
    if problem.channels_last and not problem.half and only_in_nchw:
        output = 0 if kind is _Kind.FORWARD else problem.output_bytes()  # the forward kernel writes NHWC itself
        return problem.input_bytes() + problem.weight_bytes + output + sums
    waiting = _waiting_tiles(problem) if kind is _Kind.FORWARD else 0
    return _converted(problem, kind) + sums + waiting


def _waiting_tiles(problem: _Problem) -> int:
    """fp32 kernels whose last tiles are computed by several multiprocessors each, and wait to be added.

    Of 128 multiprocessors all but one per tile write such a part: measured were 64, 96, 112, 120 or 128 parts. cuDNN takes
    another kernel where batch and channels are those of well-known networks.
    """
    pixels, few = problem.batch * prod(problem.output_shape), problem.k < WAITING_WIDE
    suits = problem.c >= WAITING_CHANNELS and problem.k in WAITING_OUTPUTS and problem.taps in WAITING_TAPS
    sized = pixels >= WAITING_PIXELS and (few or pixels <= WAITING_MOST_PIXELS or problem.c >= 4 * problem.k)
    unusual = problem.c >= 2 * problem.k or problem.batch % TUNED_BATCH
    if problem.half or problem.channels_last or not (suits and sized and unusual):
        return 0
    return (WAITING_TILES if problem.c >= DEEP_CHANNELS else FEW_WAITING_TILES) * TILE * TILE * 4


def _winograd(problem: _Problem) -> int:
    """fp32 weight gradients of few pixels and weights: tiles of 4 x 4 pixels and filters as 6 x 6 coefficients."""
    tiles = problem.batch * prod(ceil(side / 4) for side in problem.output_shape)
    pixels, pairs = problem.batch * prod(problem.output_shape), problem.c * problem.k
    plain = problem.kernel == (3, 3) and problem.stride == problem.dilation == 1 and not problem.channels_last
    small = pairs <= WINOGRAD_PAIRS and max(pixels, 256 * problem.batch) <= WINOGRAD_PIXELS
    fitting = 16 * tiles <= WINOGRAD_COVER * pixels or pixels <= WINOGRAD_PIXELS // 2
    enough = min(problem.c, problem.k) >= WINOGRAD_CHANNELS and not problem.half
    return 36 * 4 * (tiles * (problem.c + problem.k) + pairs) if plain and small and fitting and enough else 0


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
    weight = 0 if problem.taps == 1 and not in_place else problem.weight_bytes * c * k // (problem.c * problem.k)
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
    image = kind is _Kind.DATA and len(problem.kernel) == 2 and not problem.half and not problem.channels_last
    most = STRIDED_CHANNELS if kind is _Kind.FORWARD else STRIDED_DATA_CHANNELS if image else 0
    if problem.stride > 1 and problem.c <= most:
        return 0  # the kernel skips pixels as it reads
    channels = min(problem.c, problem.k)
    few = pixels >= WIDE_PIXELS and max(problem.batch, channels) <= NARROW
    narrow = kind is _Kind.WEIGHT and (few or (pixels >= WIDEST_PIXELS and channels <= LESS_NARROW))
    if problem.channels_last or problem.stride > 1 or pixels % 4 or (narrow and not problem.half):
        return converted
    # One product per image; the weight gradient then adds up one fp32 result per image.
    results = problem.batch * problem.weights * 4 if kind is _Kind.WEIGHT else 0
    return results if len(problem.kernel) == 1 else min(results, converted)


def _grouped(problem: _Problem, kind: _Kind, gpu: Gpu) -> int:
    c, k = problem.c // problem.groups, problem.k // problem.groups
    wide = 1 << (max(c, k, DEPTHWISE_PADDING) - 1).bit_length()
    sums = _partial_sums(problem, gpu) if kind is _Kind.WEIGHT else 0
    if kind is _Kind.WEIGHT and not problem.half:
        # Runs in NCHW only, and pads no further than to whole loads.
        c, k = (_round_up(side, DEPTHWISE_PADDING) * problem.groups for side in (c, k))
        return problem.input_bytes(c) + problem.output_bytes(k) + problem.weight_bytes + sums
    if max(c, k) <= GROUP_RATIO * min(c, k) and (c, k) != (wide, wide) and wide <= GROUP_WIDTH:
        channels = wide * problem.groups
        return problem.input_bytes(channels) + problem.output_bytes(channels) + problem.weight_bytes + sums
    if problem.channels_last and c == k:
        return sums
    return problem.input_bytes() + problem.output_bytes() + problem.weight_bytes + sums


def _depthwise(problem: _Problem, kind: _Kind) -> int:
    """torch's own kernels need nothing. cuDNN runs in NHWC, and for some weight gradients of fp16."""
    both, taps, pixels = problem.input_bytes() + problem.output_bytes(), set(problem.kernel), prod(problem.output_shape)
    if problem.half and problem.channels_last and kind is _Kind.DATA:
        return DEPTHWISE_PADDING * both if taps == {3} and len(problem.kernel) == 3 and problem.stride == 1 else 0
    if kind is not _Kind.WEIGHT:
        return 0
    known = problem.dilation == 1 and taps <= {3, 5}
    if problem.by_torch:
        few = problem.c <= DEPTHWISE_FP16_CHANNELS and problem.stride == 1
        return both if known and few and problem.dtype == "float16" else 0
    if problem.half:
        split = problem.dilation == 1 and (taps <= {5, 7} or (taps == {3} and pixels <= DEPTHWISE_SMALL_PIXELS))
        return problem.batch * DEPTHWISE_SUMS * problem.weights * 4 if split else 0
    wide = problem.stride == 1 and problem.taps > 1 and pixels >= DEPTHWISE_LARGE_PIXELS
    return DEPTHWISE_PADDING * both if wide and not (known and len(problem.kernel) == 2) else 0


def _partial_sums(problem: _Problem, gpu: Gpu) -> int:
    """The fp32 results of a weight gradient whose reduction is split so that every multiprocessor has a tile.

    A tile is one tap of some channels times some others. If they fill at most half the multiprocessors, each part of
    the batch has its own copy of the gradient; else parts of single tiles wait to be added.
    """
    rows, columns = problem.k, problem.c // problem.groups
    height, width = (SMALL_TILE if side <= SMALL_TILE else TILE for side in (rows, columns))
    tiles = ceil(rows / height) * ceil(columns / width) * problem.taps
    pixels, pointwise = problem.batch * prod(problem.output_shape), problem.taps == 1
    half_chunk = POINTWISE_HALF_CHUNK if pointwise else HALF_CHUNK
    chunks = pixels // (half_chunk if problem.half else FP32_CHUNK)  # the least that is worth a split of its own
    workers = round(gpu.sms * HALF_SHARE) if problem.half else gpu.sms
    if problem.half and not pointwise and min(rows, columns) >= PAIR_CHANNELS and pixels >= PAIR_PIXELS:
        tiles, workers = ceil(tiles / 2), gpu.sms
    splits = min(workers // tiles, chunks)
    if splits > 1:
        # Of tiles that are not full, fp32 kernels write out all.
        sides = min(rows, columns) > NCHW_WEIGHT_CHANNELS and max(rows, columns) <= SMALL_TILE
        whole = sides and len(problem.kernel) == 2 and min(problem.kernel) >= 3
        padded = height * width * tiles if whole and not problem.half else problem.weights
        return splits * padded * 4
    full = tiles % workers == 0 or tiles % workers >= FULL * workers
    if chunks < 2 or pointwise or full or tiles > 2 * workers:
        return 0
    waiting = workers // 2 if tiles <= workers else workers
    return min(problem.weights, waiting * height * width) * 4


def _largest_trial(problem: _Problem, kind: _Kind) -> int:
    """The largest kernel that `benchmark` tries: Fourier transforms of images and filters, seen in fp32 and NCHW."""
    plain = len(problem.kernel) == 2 and problem.dilation == 1 and problem.groups == 1
    if not plain or problem.dtype != "float32" or problem.channels_last:
        return 0
    if kind is _Kind.DATA:
        return _tiled_transforms(problem)
    pairs, batch = problem.c * problem.k, problem.batch
    side = max(problem.input_shape) + max(problem.kernel) - 1
    transform = next((fft * (fft // 2 + 1) * 16 for fft in FFT_SIDES if fft >= side), 0)
    if problem.stride > 1 or not transform:
        return 0
    if kind is _Kind.FORWARD:
        return transform * (pairs + batch * problem.c)
    tried = side <= FFT_WEIGHT_SIDE and problem.taps <= FFT_WEIGHT_TAPS
    return tried * (transform * max(pairs, batch * (problem.c + problem.k)) + problem.output_bytes())


def _tiled_transforms(problem: _Problem) -> int:
    """A data gradient with stride 2, as one transform for each of the four phases; or one of a single pixel."""
    phases, pairs, side = problem.stride**2, problem.c * problem.k, max(problem.output_shape)
    if side == 1 and problem.k >= SMALL_TILE:
        return FFT_TILE_BYTES * (pairs + problem.batch * (problem.c + problem.k))
    if problem.stride != 2 or min(problem.kernel) < 3 or side > FFT_TILE:
        return 0
    tiles = 1 if side + max(problem.kernel) - 1 <= FFT_TILE else 2
    transforms = phases * pairs + problem.batch * (phases * problem.c + problem.k) * tiles
    return FFT_TILE_BYTES * transforms + problem.input_bytes() + problem.weight_bytes + problem.output_bytes()


def _problem(operator: Operator, tuned: bool = False) -> _Problem | None:
    """The convolution behind an operator; `None` if it is empty or of a dtype that cuDNN does not take."""
    source, weight, result = _operands(operator)
    if source.numel == 0 or result.numel == 0 or source.dtype not in (*_HALVES, "float32", "float64"):
        return None
    big, small = (result, source) if operator.attributes.get("transposed", False) else (source, result)
    return _Problem(
        batch=source.shape[0], c=big.shape[1], k=small.shape[1],
        input_shape=big.shape[2:], output_shape=small.shape[2:], kernel=weight.shape[2:],
        stride=max(_integers(operator, "stride")), dilation=max(_integers(operator, "dilation")),
        groups=_integers(operator, "groups")[0], dtype=source.dtype, tuned=tuned,
        channels_last=len(source.shape) > 3 and "channels_last" in (source.layout, weight.layout),
    )  # fmt: skip


def _operands(operator: Operator) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Input, weight and output; of a backward call, the gradient stands for the output."""
    backward = operator.name == "aten::convolution_backward"
    gradient, source, weight = operator.inputs[:3] if backward else (operator.outputs[0], *operator.inputs[:2])
    if source is None or weight is None or gradient is None:
        raise ValueError(f"{operator.name} lacks a tensor: {operator.inputs}")
    return source, weight, gradient


def _kinds(operator: Operator) -> list[_Kind]:
    """What the call computes, in order."""
    forward, data = _Kind.FORWARD, _Kind.DATA
    if operator.attributes.get("transposed", False):
        forward, data = data, forward
    if operator.name == "aten::convolution":
        return [forward]
    mask = _values(operator.attributes.get("output_mask", (True, True, False)))
    return ([data] if mask[0] else []) + ([_Kind.WEIGHT] if mask[1] else [])


def _copies(operator: Operator, problem: _Problem) -> Iterator[int]:
    """torch copies what is not in the layout of the call: channels last if the input or the weight is."""
    specs = operator.inputs[:3] if operator.name == "aten::convolution_backward" else operator.inputs[:2]
    wanted = "channels_last" if problem.channels_last else "contiguous"
    for spec in specs:
        if spec is not None and spec.layout != wanted:
            same_in_both = spec.shape[1] == 1 or prod(spec.shape[2:]) == 1
            if spec.layout == "strided" or not same_in_both:
                yield spec.nbytes


def _integers(operator: Operator, name: str) -> tuple[int, ...]:
    values = _values(operator.attributes.get(name, 1))
    return tuple(int(value) for value in values if isinstance(value, int)) or (1,)


def _values(attribute: Attribute) -> Sequence[Attribute]:
    return attribute if isinstance(attribute, Sequence) and not isinstance(attribute, str) else (attribute,)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
