"""What each type of layer computes, on torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from torch import Tensor, nn

from tonnage.program.caffe.layer import Layer, Shape
from tonnage.program.caffe.layers import arrangement, detection, pointwise, statistics, windows

Builder: TypeAlias = Callable[[Layer, Sequence[Tensor], list[Shape]], nn.Module]
_POINTWISE = "ReLU ReLU6 ELU Sigmoid TanH Power AbsVal BNLL Threshold Swish Dropout Clip Exp Log Softmax LogSoftmax"
BUILDERS: Mapping[str, Builder] = {
    **dict.fromkeys(_POINTWISE.split(), pointwise.activation),
    "PReLU": pointwise.prelu,
    "Eltwise": pointwise.eltwise,
    "Axpy": pointwise.axpy,
    "Affine": statistics.affine,  # of `folding`
    "BatchNorm": statistics.batch_norm,
    "BN": statistics.batch_norm,
    "Normalize": statistics.normalize,
    "LRN": statistics.lrn,
    "MVN": statistics.mvn,
    "Scale": statistics.scale,
    "Bias": statistics.scale,
    "InnerProduct": statistics.inner_product,
    "Embed": statistics.embed,
    "ArgMax": statistics.argmax,
    "Reduction": statistics.reduction,
    "Convolution": windows.convolution,
    "DepthwiseConvolution": windows.convolution,
    "ConvolutionDepthwise": windows.convolution,
    "Deconvolution": windows.convolution,
    "SummedConvolution": windows.convolution,  # of `apart`
    "Pooling": windows.pooling,
    "Split": arrangement.split,
    "Silence": arrangement.silence,
    "Concat": arrangement.concat,
    "Slice": arrangement.slice_,
    "Flatten": arrangement.reshape,
    "Reshape": arrangement.reshape,
    "Permute": arrangement.permute,
    "Crop": arrangement.crop,
    "Tile": arrangement.tile,
    "ShuffleChannel": arrangement.shuffle,
    "Interp": arrangement.interp,
    "Upsample": arrangement.upsample,
    "PriorBox": detection.prior_box,
    "DetectionOutput": detection.detection_output,
}
