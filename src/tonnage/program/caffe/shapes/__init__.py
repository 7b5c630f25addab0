"""What each type of layer reads and makes: the rules by which Caffe finds the shapes of blobs and weights. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tonnage.program.caffe.layer import Layer, Shape, Shaped
from tonnage.program.caffe.shapes import arrangement, detection, values, windows

_MANY = 10_000


@dataclass(frozen=True, slots=True)
class Rule:
    """How shapes follow, and how many bottoms and tops a layer has: least and most."""

    shapes: Callable[[Layer, list[Shape]], Shaped]
    bottoms: tuple[int, int] = (1, 1)
    tops: tuple[int, int] = (1, 1)


_EACH = ((1, _MANY), (1, _MANY))  # as many tops as bottoms
_KEPT = "ReLU ReLU6 ELU Sigmoid TanH Power AbsVal BNLL Threshold Swish Dropout"  # shapes stay as they are
RULES: Mapping[str, Rule] = {
    **{name: Rule(values.same) for name in _KEPT.split()},
    "Clip": Rule(values.clip),
    "Exp": Rule(values.logarithm),
    "Log": Rule(values.logarithm),
    "Softmax": Rule(values.softmax),
    "LogSoftmax": Rule(values.softmax),
    "PReLU": Rule(values.prelu),
    "BatchNorm": Rule(values.batch_norm),
    "BN": Rule(values.bn),
    "Normalize": Rule(values.normalize),
    "LRN": Rule(values.lrn),
    "MVN": Rule(values.mvn),
    "Scale": Rule(values.scale, (1, 2)),
    "Bias": Rule(values.bias, (1, 2)),
    "InnerProduct": Rule(values.inner_product),
    "Embed": Rule(values.embed),
    "Eltwise": Rule(values.eltwise, (2, _MANY)),
    "Axpy": Rule(values.axpy, (3, 3)),
    "ArgMax": Rule(values.argmax),
    "Reduction": Rule(values.reduction),
    "Convolution": Rule(windows.convolution, *_EACH),
    "DepthwiseConvolution": Rule(windows.convolution, *_EACH),
    "ConvolutionDepthwise": Rule(windows.convolution, *_EACH),
    "Deconvolution": Rule(windows.deconvolution, *_EACH),
    "Pooling": Rule(windows.pooling, (1, 1), (1, 2)),
    "Split": Rule(arrangement.split, (1, 1), (1, _MANY)),
    "Silence": Rule(arrangement.nothing, (1, _MANY), (0, 0)),
    "Concat": Rule(arrangement.concat, (1, _MANY)),
    "Slice": Rule(arrangement.slice_, (1, 1), (1, _MANY)),
    "Flatten": Rule(arrangement.flatten),
    "Reshape": Rule(arrangement.reshape),
    "Permute": Rule(arrangement.permute),
    "Crop": Rule(arrangement.crop, (2, 2)),
    "Tile": Rule(arrangement.tile),
    "ShuffleChannel": Rule(arrangement.shuffle),
    "Interp": Rule(arrangement.interp, (1, 2)),
    "Upsample": Rule(arrangement.upsample, (1, 2)),
    "PriorBox": Rule(detection.prior_box, (2, 2)),
    "DetectionOutput": Rule(detection.detection_output, (3, 3)),
}


def shapes_of(layer: Layer, bottoms: list[Shape]) -> Shaped:
    """The shapes of what a layer makes; raises `InvalidFile` with its name, type and line where that is impossible."""
    rule = RULES[layer.type]
    for number, (least, most), word in ((len(bottoms), rule.bottoms, "bottom"), (len(layer.tops), rule.tops, "top")):
        if not least <= number <= most:
            wanted = str(least) if least == most else f"{least} or more" if most == _MANY else f"{least} or {most}"
            layer.refuse(f"has {number} {word}s, not {wanted}")
    if rule.tops == (1, _MANY) and rule.bottoms == (1, _MANY) and len(bottoms) != len(layer.tops):
        layer.refuse(f"has {len(bottoms)} bottoms and {len(layer.tops)} tops, not as many")
    return rule.shapes(layer, bottoms)
