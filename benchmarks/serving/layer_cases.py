"""A network of one layer for each type that the reader knows, with settings that matter."""

from pathlib import Path

import zoo

from tonnage.program.caffe import Model, load

Shape = tuple[int, ...]
IMAGE: Shape = (2, 6, 17, 19)
_CONV = "convolution_param { num_output: 8 kernel_size: 3"
CASES: list[tuple[str, str]] = [
    ("Convolution", f"{_CONV} pad: 1 stride: 2 }}"), ("Convolution", f"{_CONV} dilation: 2 group: 2 }}"),
    ("DepthwiseConvolution", "convolution_param { num_output: 6 kernel_size: 3 pad: 1 }"),
    ("ConvolutionDepthwise", "convolution_param { num_output: 6 kernel_size: 3 stride: 2 }"),
    ("Deconvolution", "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 2 }"),
    ("Pooling", "pooling_param { kernel_size: 3 stride: 2 }"),
    ("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    ("Pooling", "pooling_param { pool: AVE global_pooling: true }"),
    ("ReLU", ""), ("ReLU", "relu_param { negative_slope: 0.3 }"), ("ReLU6", ""), ("PReLU", ""),
    ("ELU", "elu_param { alpha: 0.5 }"), ("Sigmoid", ""), ("TanH", ""), ("AbsVal", ""), ("BNLL", ""), ("Dropout", ""),
    ("Power", "power_param { power: 2 scale: 3 shift: 1 }"), ("Exp", "exp_param { base: 2 shift: 1 }"),
    ("Log", "log_param { scale: 0.01 shift: 1 base: 3 }"), ("Threshold", "threshold_param { threshold: 0.1 }"),
    ("Clip", "clip_param { min: 0 max: 0.4 }"), ("Swish", "swish_param { beta: 3 }"), ("Softmax", ""),
    ("LogSoftmax", "softmax_param { axis: 2 }"), ("BatchNorm", ""),
    ("BatchNorm", "batch_norm_param { use_global_stats: false }"), ("BN", ""), ("MVN", ""),
    ("Scale", "scale_param { bias_term: true }"), ("Bias", "bias_param { axis: 2 num_axes: 2 }"),
    ("InnerProduct", "inner_product_param { num_output: 13 }"),
    ("Normalize", "norm_param { across_spatial: false channel_shared: false }"),
    ("LRN", "lrn_param { local_size: 3 alpha: 0.2 }"), ("LRN", "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }"),
    ("Split", ""), ("Flatten", ""), ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }"),
    ("Permute", "permute_param { order: [0, 3, 1] }"), ("Slice", "slice_param { slice_point: 2 }"),
    ("Tile", "tile_param { tiles: 2 }"), ("ShuffleChannel", "shuffle_channel_param { group: 3 }"),
    ("Interp", "interp_param { height: 30 width: 41 }"), ("Upsample", ""),
    ("ArgMax", "argmax_param { axis: 1 }"), ("ArgMax", "argmax_param { top_k: 3 out_max_val: true }"),
    ("Reduction", "reduction_param { axis: 1 operation: MEAN }"),
]  # fmt: skip
SEVERAL: list[tuple[str, str, tuple[Shape, ...]]] = [
    ("Eltwise", "eltwise_param { coeff: 1 coeff: -2 }", (IMAGE, IMAGE)),
    ("Eltwise", "eltwise_param { operation: PROD }", (IMAGE, IMAGE)),
    ("Eltwise", "eltwise_param { operation: MAX }", (IMAGE, IMAGE)),
    ("Concat", "", (IMAGE, (2, 3, 17, 19))),
    ("Crop", "crop_param { offset: 1 }", (IMAGE, (1, 1, 4, 5))),
    ("Scale", "scale_param { axis: 0 }", (IMAGE, (2, 6))),
    ("Axpy", "", ((2, 6, 1, 1), IMAGE, IMAGE)),
    ("PriorBox", "prior_box_param { min_size: 3 aspect_ratio: 2 }", (IMAGE, (2, 3, 40, 60))),
    ("DetectionOutput", "detection_output_param { num_classes: 3 keep_top_k: 9 }", ((1, 80), (1, 60), (1, 2, 80))),
]
_TOPS = {"Split": ("x", "y"), "Slice": ("x", "y")}


def models(folder: Path) -> list[tuple[str, Model]]:
    """The name of each case, and its model with random weights."""
    cases = [*((kind, settings, (IMAGE,)) for kind, settings in CASES), *SEVERAL]
    return [(f"{kind} {settings}".strip(), _model(folder, kind, settings, shapes)) for kind, settings, shapes in cases]


def _model(folder: Path, kind: str, settings: str, shapes: tuple[Shape, ...]) -> Model:
    names = "abc"[: len(shapes)]
    lines = [_input(name, shape) for name, shape in zip(names, shapes, strict=True)]
    reads = " ".join(f'bottom: "{name}"' for name in names)
    makes = " ".join(f'top: "{name}"' for name in _TOPS.get(kind, ("out",)))
    lines.append(f'layer {{ name: "layer" type: "{kind}" {reads} {makes} {settings} }}')
    prototxt, weights = folder / "layer.prototxt", folder / "layer.caffemodel"
    prototxt.write_text("\n".join(lines))
    network = load(prototxt).network
    if not network.weights:
        return Model(network=network, weights={})
    weights.write_bytes(zoo.caffemodel(zoo.random_weights(network)))
    return load(prototxt, weights)


def _input(name: str, shape: Shape) -> str:
    dims = " ".join(f"dim: {size}" for size in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}'
