"""The ONNX file of a network computes what the network does."""

from pathlib import Path

import numpy as np
import pytest
from caffe_files import input_text, layer_text, made_model, one_layer, random_inputs

pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tonnage.errors import InvalidFile, UsageError  # noqa: E402
from tonnage.program.caffe import Model, load  # noqa: E402
from tonnage.program.caffe.onnx_export import export_onnx  # noqa: E402

IMAGE = (2, 6, 7, 9)


def outputs_of(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        session = ReferenceEvaluator(str(path))
        return dict(zip(session.output_names, session.run(None, inputs), strict=True))
    running = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in running.get_outputs()], running.run(None, inputs), strict=True))


def agree(folder: Path, model: Model) -> None:
    path = folder / "net.onnx"
    export_onnx(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    inputs = random_inputs(model)
    found, wanted = outputs_of(path, inputs), model.run(inputs)
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        assert found[name].shape == values.shape
        np.testing.assert_allclose(found[name], values, atol=1e-4, rtol=1e-4)


CASES = [
    ("Convolution", "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 dilation: 2 group: 2 }"),
    ("Deconvolution", "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 2 }"),
    ("Pooling", "pooling_param { kernel_size: 2 stride: 2 }"),
    ("Pooling", "pooling_param { kernel_size: 3 stride: 2 pad: 1 }"),
    ("Pooling", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }"),
    ("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    ("Pooling", "pooling_param { pool: AVE global_pooling: true }"),
    ("ReLU", ""), ("ReLU", "relu_param { negative_slope: 0.3 }"),
    ("PReLU", ""), ("PReLU", "prelu_param { channel_shared: true }"),
    ("ELU", "elu_param { alpha: 0.5 }"), ("Sigmoid", ""), ("TanH", ""), ("AbsVal", ""), ("BNLL", ""), ("Dropout", ""),
    ("Power", "power_param { power: 2 scale: 3 shift: 1 }"), ("Exp", "exp_param { base: 2 shift: 1 }"),
    ("Log", "log_param { scale: 0.01 shift: 1 base: 3 }"), ("Threshold", "threshold_param { threshold: 0.1 }"),
    ("Clip", "clip_param { min: 0 max: 0.4 }"), ("ReLU6", ""), ("Swish", "swish_param { beta: 3 }"), ("Softmax", ""),
    ("LogSoftmax", "softmax_param { axis: 2 }"),
    ("BatchNorm", ""), ("BatchNorm", "batch_norm_param { use_global_stats: false }"),
    ("BN", ""), ("MVN", ""), ("MVN", "mvn_param { normalize_variance: false across_channels: true }"),
    ("Scale", "scale_param { bias_term: true }"), ("Bias", "bias_param { axis: 2 num_axes: 2 }"),
    ("InnerProduct", "inner_product_param { num_output: 3 }"),
    ("InnerProduct", "inner_product_param { num_output: 3 axis: 2 transpose: true bias_term: false }"),
    ("Normalize", ""), ("Normalize", "norm_param { across_spatial: false channel_shared: false }"),
    ("LRN", "lrn_param { local_size: 3 alpha: 0.2 k: 2 }"),
    ("LRN", "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }"),
    ("Flatten", ""), ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }"),
    ("Permute", "permute_param { order: [0, 3, 1] }"),
    ("Tile", "tile_param { tiles: 2 }"), ("ShuffleChannel", "shuffle_channel_param { group: 3 }"),
    ("Interp", "interp_param { height: 12 width: 11 pad_end: -1 }"), ("Upsample", ""),
    ("ArgMax", "argmax_param { axis: 1 }"), ("ArgMax", ""), ("Reduction", "reduction_param { axis: 1 }"),
    ("Reduction", "reduction_param { axis: 2 operation: MEAN coeff: 2 }"),
    ("Reduction", "reduction_param { axis: 1 operation: ASUM }"),
    ("Reduction", "reduction_param { axis: 1 operation: SUMSQ }"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_layers(tmp_path: Path, kind: str, settings: str) -> None:
    if kind in ("Deconvolution", "LRN"):
        pytest.importorskip("onnxruntime", reason="onnx's own evaluator is wrong about ConvTranspose in groups and LRN")
    agree(tmp_path, one_layer(tmp_path, kind, settings))


@pytest.mark.parametrize(
    ("kind", "settings", "shapes"),
    [
        ("Eltwise", "eltwise_param { coeff: 1 coeff: -2 }", (IMAGE, IMAGE)),
        ("Eltwise", "eltwise_param { operation: PROD }", (IMAGE, IMAGE, IMAGE)),
        ("Eltwise", "eltwise_param { operation: MAX }", (IMAGE, IMAGE)),
        ("Concat", "", (IMAGE, (2, 3, 7, 9))),
        ("Crop", "crop_param { offset: 1 }", (IMAGE, (1, 1, 4, 5))),
        ("Scale", "scale_param { axis: 0 }", (IMAGE, (2, 6))),
        ("Axpy", "", ((2, 6, 1, 1), IMAGE, IMAGE)),
        ("PriorBox", "prior_box_param { min_size: 3 aspect_ratio: 2 }", (IMAGE, (2, 3, 20, 30))),
    ],
)
def test_layers_with_several_bottoms(
    tmp_path: Path, kind: str, settings: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    agree(tmp_path, one_layer(tmp_path, kind, settings, shapes))


def test_a_network_with_layers_in_place_and_several_outputs(tmp_path: Path) -> None:
    text = input_text(2, 3, 9, 9) + layer_text(
        "Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", tops="c"
    )
    text += layer_text("BatchNorm", "", "c", "c", name="b") + layer_text(
        "Scale", "scale_param { bias_term: true }", "c", "c", name="s"
    )
    text += (
        layer_text("ReLU", "", "c", "c", name="r")
        + layer_text("Slice", "", "c", "x y")
        + layer_text("Split", "", "y", "z w")
    )
    agree(tmp_path, made_model(tmp_path, text))


def test_numbers_become_rows_of_weights(tmp_path: Path) -> None:
    model = one_layer(tmp_path, "Embed", "embed_param { num_output: 3 input_dim: 5 }", ((2, 4),))
    export_onnx(model, tmp_path / "net.onnx")
    words = {"a": np.array([[0, 1, 2, 3], [4, 4, 0, 1]], np.float32)}

    np.testing.assert_allclose(outputs_of(tmp_path / "net.onnx", words)["out"], model.run(words)["out"])


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    detection = one_layer(
        tmp_path, "DetectionOutput", "detection_output_param { num_classes: 2 }", ((1, 4), (1, 2), (1, 2, 4))
    )
    with pytest.raises(InvalidFile, match=r"layer out \(DetectionOutput\) has no counterpart in ONNX"):
        export_onnx(detection, tmp_path / "net.onnx")
    with pytest.raises(UsageError, match="has no weights"):
        export_onnx(load(tmp_path / "net.prototxt"), tmp_path / "net.onnx")
