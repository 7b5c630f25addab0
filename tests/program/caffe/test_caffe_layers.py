"""Each layer against Caffe's definition in plain loops of numpy."""

from collections.abc import Callable
from pathlib import Path

import caffe_definitions as defined
import numpy as np
import pytest
from caffe_files import input_text, layer_text, made_model, one_layer, random_inputs

from tonnage.program.caffe.apart import SUMMED, apart
from tonnage.program.caffe.fusion import steps_of

torch = pytest.importorskip("torch")

IMAGE = (2, 6, 7, 9)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "stride", "pad", "dilation", "group"),
    [
        ("kernel_size: 3", (1, 1), (0, 0), (1, 1), 1),
        ("kernel_size: 3 stride: 2 pad: 1 bias_term: false", (2, 2), (1, 1), (1, 1), 1),
        ("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 0 pad_w: 2", (2, 1), (0, 2), (1, 1), 1),
        ("kernel_size: 3 dilation: 2 pad: 2", (1, 1), (2, 2), (2, 2), 1),
        ("kernel_size: 3 kernel_size: 1 dilation: 1 dilation: 3 group: 2", (1, 1), (0, 0), (1, 3), 2),
        ("kernel_size: 1 group: 3 stride: 3", (3, 3), (0, 0), (1, 1), 3),
        ("kernel_size: 3 hole: 2", (1, 1), (0, 0), (2, 2), 1),
    ],
)
def test_convolution(tmp_path: Path, settings: str, stride: object, pad: object, dilation: object, group: int) -> None:
    model = one_layer(tmp_path, "Convolution", f"convolution_param {{ num_output: 12 {settings} }}")
    inputs = random_inputs(model)
    weight, *bias = model.weights["out"]

    close(model.run(inputs)["out"], defined.convolution(
        inputs["a"], weight, bias[0] if bias else None, stride, pad, dilation, group))  # fmt: skip


def test_depthwise_convolution_has_a_group_for_each_channel(tmp_path: Path) -> None:
    model = one_layer(tmp_path, "DepthwiseConvolution", "convolution_param { num_output: 6 kernel_size: 3 pad: 1 }")
    inputs = random_inputs(model)
    weight, bias = model.weights["out"]

    assert weight.shape == (6, 1, 3, 3)
    close(model.run(inputs)["out"], defined.convolution(inputs["a"], weight, bias, (1, 1), (1, 1), (1, 1), 6))


def test_convolution_over_one_and_three_axes(tmp_path: Path) -> None:
    line = one_layer(tmp_path, "Convolution", "convolution_param { num_output: 3 kernel_size: 3 }", ((2, 4, 8),))
    cube = one_layer(tmp_path, "Convolution", "convolution_param { num_output: 3 kernel_size: 1 }", ((2, 4, 3, 4, 5),))
    given = random_inputs(cube)
    weight, bias = cube.weights["out"]

    assert line.outputs == {"out": (2, 3, 6)}
    wanted = np.einsum("ncdhw,oc->nodhw", given["a"], weight[:, :, 0, 0, 0]) + bias[:, None, None, None]
    close(cube.run(given)["out"], wanted)


@pytest.mark.parametrize(
    ("settings", "stride", "pad", "dilation", "group"),
    [("kernel_size: 4 stride: 2 pad: 1", 2, 1, 1, 1), ("kernel_size: 3 group: 3 bias_term: false", 1, 0, 1, 3),
     ("kernel_size: 2 stride: 3 dilation: 2 group: 2", 3, 0, 2, 2)],
)  # fmt: skip
def test_deconvolution(tmp_path: Path, settings: str, stride: int, pad: int, dilation: int, group: int) -> None:
    model = one_layer(tmp_path, "Deconvolution", f"convolution_param {{ num_output: 6 {settings} }}")
    inputs = random_inputs(model)
    weight, *bias = model.weights["out"]

    close(model.run(inputs)["out"], defined.deconvolution(
        inputs["a"], weight, bias[0] if bias else None, stride, pad, dilation, group))  # fmt: skip


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(
    ("settings", "kernel", "stride", "pad", "floor"),
    [
        ("kernel_size: 3 stride: 2", (3, 3), (2, 2), (0, 0), False),
        ("kernel_size: 2 stride: 2", (2, 2), (2, 2), (0, 0), False),
        ("kernel_size: 3 stride: 2 pad: 1", (3, 3), (2, 2), (1, 1), False),
        ("kernel_size: 3 stride: 2 pad: 2", (3, 3), (2, 2), (2, 2), False),
        ("kernel_h: 2 kernel_w: 5 stride_h: 3 stride_w: 2 pad_h: 0 pad_w: 2", (2, 5), (3, 2), (0, 2), False),
        ("kernel_size: 3 stride: 2 round_mode: FLOOR", (3, 3), (2, 2), (0, 0), True),
        ("kernel_size: 2 stride: 3", (2, 2), (3, 3), (0, 0), False),
        ("global_pooling: true", (7, 9), (1, 1), (0, 0), False),
    ],
)
def test_pooling(
    tmp_path: Path, method: str, settings: str, kernel: object, stride: object, pad: object, floor: bool
) -> None:
    model = one_layer(tmp_path, "Pooling", f"pooling_param {{ pool: {method} {settings} }}")
    inputs = random_inputs(model)

    wanted, _ = defined.pooling(inputs["a"], kernel, stride, pad, method == "AVE", floor)
    close(model.run(inputs)["out"], wanted)


def test_windows_behind_an_image_hold_the_lowest_number(tmp_path: Path) -> None:
    model = one_layer(tmp_path, "Pooling", "pooling_param { kernel_size: 1 stride: 2 }", ((1, 2, 4, 4),))
    inputs = random_inputs(model)

    wanted, _ = defined.pooling(inputs["a"], (1, 1), (2, 2), (0, 0), mean=False)
    assert wanted.shape == (1, 2, 3, 3)
    close(model.run(inputs)["out"], wanted)


@pytest.mark.parametrize(("settings", "pad"), [("kernel_size: 2 stride: 2", 0), ("kernel_size: 3 stride: 2 pad: 2", 2)])
def test_maxima_are_put_back_where_they_were(tmp_path: Path, settings: str, pad: int) -> None:
    text = input_text(*IMAGE) + layer_text("Pooling", f"pooling_param {{ {settings} }}", tops="pool mask")
    text += layer_text("Upsample", "upsample_param { upsample_h: 7 upsample_w: 9 }", "pool mask", "out")
    text += layer_text("Split", "", "mask", "seen")
    model = made_model(tmp_path, text)
    inputs = random_inputs(model)
    found = model.run(inputs)
    kernel = (3, 3) if pad else (2, 2)

    values, mask = defined.pooling(inputs["data"], kernel, (2, 2), (pad, pad), mean=False)
    close(found["seen"], mask)
    wanted = np.zeros((2, 6, 63))
    np.put_along_axis(wanted, mask.reshape(2, 6, -1), values.reshape(2, 6, -1), 2)
    close(found["out"], wanted.reshape(IMAGE))


def test_local_response_normalisation(tmp_path: Path) -> None:
    across = one_layer(tmp_path, "LRN", "lrn_param { local_size: 5 alpha: 0.3 beta: 0.75 k: 2 }")
    within = one_layer(
        tmp_path, "LRN", "lrn_param { local_size: 3 alpha: 0.3 beta: 0.5 k: 7 norm_region: WITHIN_CHANNEL }"
    )
    inputs = random_inputs(across)

    close(across.run(inputs)["out"], defined.lrn_across(inputs["a"], 5, 0.3, 0.75, 2))
    close(within.run(inputs)["out"], defined.lrn_within(inputs["a"], 3, 0.3, 0.5))


def test_batch_norm_divides_its_sums_by_their_number(tmp_path: Path) -> None:
    model = one_layer(tmp_path, "BatchNorm", "batch_norm_param { eps: 0.01 }")
    inputs = random_inputs(model)
    mean, variance, count = (each[:, None, None] for each in model.weights["out"])

    close(model.run(inputs)["out"], (inputs["a"] - mean / count) / np.sqrt(variance / count + 0.01))


def test_batch_norm_of_the_batch_itself(tmp_path: Path) -> None:
    model = one_layer(tmp_path, "BatchNorm", "batch_norm_param { use_global_stats: false }")
    x = random_inputs(model)["a"]

    wanted = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    close(model.run({"a": x})["out"], wanted)


@pytest.mark.parametrize("follower", ["BatchNorm", "Scale", "BN", "Bias"])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_follows_a_convolution_is_folded_into_it(tmp_path: Path, follower: str, in_place: bool) -> None:
    conv = layer_text("Convolution", "convolution_param { num_output: 4 kernel_size: 3 bias_term: false }", tops="conv")
    settings = "scale_param { bias_term: true }" if follower == "Scale" else ""
    top = "conv" if in_place else "after"
    text = input_text(*IMAGE) + conv + layer_text(follower, settings, "conv", top, name="follow")
    text += layer_text("ReLU", "relu_param { negative_slope: 0.1 }", top, "out")
    model = made_model(tmp_path, text)
    alone = made_model(tmp_path, text + layer_text("Split", "", top, "seen"))
    inputs = random_inputs(model)
    found = alone.run(inputs)

    assert len(steps_of(model.network)) == 1
    close(model.run(inputs)["out"], found["out"])
    close(found["out"], np.where(found["seen"] > 0, found["seen"], 0.1 * found["seen"]))


def test_a_value_with_another_reader_is_not_folded_away(tmp_path: Path) -> None:
    conv = layer_text("Convolution", "convolution_param { num_output: 6 kernel_size: 1 }", tops="conv")
    text = (
        input_text(*IMAGE)
        + conv
        + layer_text("ReLU", "", "conv", "relu")
        + layer_text("Eltwise", "", "conv relu", "out")
    )
    model = made_model(tmp_path, text)
    inputs = random_inputs(model)
    weight, bias = model.weights["conv"]
    wanted = defined.convolution(inputs["data"], weight, bias, (1, 1), (0, 0), (1, 1), 1)

    close(model.run(inputs)["out"], wanted + np.maximum(wanted, 0))


def test_scale_and_bias(tmp_path: Path) -> None:
    own = one_layer(tmp_path, "Scale", "scale_param { axis: 2 num_axes: 2 bias_term: true }")
    given = one_layer(tmp_path, "Scale", "scale_param { axis: 0 }", (IMAGE, (2, 6)))
    added = one_layer(tmp_path, "Bias", "bias_param { axis: -1 }", (IMAGE, (9,)))
    x, factors = random_inputs(given).values()
    row = random_inputs(added)["b"]
    weight, bias = own.weights["out"]

    close(own.run({"a": x})["out"], x * weight + bias)
    close(given.run({"a": x, "b": factors})["out"], x * factors[:, :, None, None])
    close(added.run({"a": x, "b": row})["out"], x + row)


@pytest.mark.parametrize(("settings", "axis"), [("", 1), ("axis: 2", 2), ("transpose: true bias_term: false", 1)])
def test_inner_product(tmp_path: Path, settings: str, axis: int) -> None:
    model = one_layer(tmp_path, "InnerProduct", f"inner_product_param {{ num_output: 5 {settings} }}")
    x = random_inputs(model)["a"]
    weight, *bias = model.weights["out"]
    matrix = weight if "transpose" in settings else weight.T

    close(model.run({"a": x})["out"], x.reshape(*IMAGE[:axis], -1) @ matrix + (bias[0] if bias else 0))


POINTWISE: list[tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = [
    ("ReLU", "", lambda x: np.maximum(x, 0)),
    ("ReLU", "relu_param { negative_slope: 0.2 }", lambda x: np.where(x > 0, x, 0.2 * x)),
    ("ReLU6", "", lambda x: np.clip(x, 0, 6)),
    ("ELU", "elu_param { alpha: 0.5 }", lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1))),
    ("Sigmoid", "", lambda x: 1 / (1 + np.exp(-x))),
    ("TanH", "", np.tanh),
    ("AbsVal", "", np.abs),
    ("BNLL", "", lambda x: np.log1p(np.exp(x))),
    ("Power", "power_param { power: 2 scale: 3 shift: 0.5 }", lambda x: (0.5 + 3 * x) ** 2),
    ("Power", "power_param { power: 2 scale: 0 shift: 3 }", lambda x: np.full_like(x, 9)),
    ("Power", "power_param { power: 0 }", np.ones_like),
    ("Exp", "", np.exp),
    ("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", lambda x: 2 ** (1 + 0.5 * x)),
    ("Log", "log_param { base: 10 scale: 0.01 shift: 1 }", lambda x: np.log10(1 + 0.01 * x)),
    ("Threshold", "threshold_param { threshold: 0.3 }", lambda x: (x > 0.3).astype(np.float32)),
    ("Clip", "clip_param { min: -0.5 max: 0.25 }", lambda x: np.clip(x, -0.5, 0.25)),
    ("Swish", "swish_param { beta: 2 }", lambda x: x / (1 + np.exp(-2 * x))),
    ("Softmax", "", lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    ("Softmax", "softmax_param { axis: -1 }", lambda x: np.exp(x) / np.exp(x).sum(3, keepdims=True)),
    ("LogSoftmax", "", lambda x: x - np.log(np.exp(x).sum(1, keepdims=True))),
    ("Dropout", "dropout_param { dropout_ratio: 0.9 }", lambda x: x),
    ("MVN", "mvn_param { eps: 0.1 }", lambda x: (x - x.mean((2, 3), keepdims=True)) / (x.std((2, 3), keepdims=True) + 0.1)),
    ("MVN", "mvn_param { across_channels: true normalize_variance: false }",
     lambda x: x - x.mean((1, 2, 3), keepdims=True)),
    ("Flatten", "flatten_param { axis: 1 end_axis: -2 }", lambda x: x.reshape(2, 42, 9)),
    ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } axis: 1 }", lambda x: x.reshape(2, 6, 63)),
    ("Reshape", "reshape_param { shape { dim: 3 dim: 2 } axis: 1 num_axes: 1 }", lambda x: x.reshape(2, 3, 2, 7, 9)),
    ("Reshape", "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }", lambda x: x.reshape(2, 6, 7, 9, 1)),
    ("Permute", "permute_param { order: 0 order: 2 }", lambda x: x.transpose(0, 2, 1, 3)),
    ("Tile", "tile_param { axis: 2 tiles: 3 }", lambda x: np.tile(x, (1, 1, 3, 1))),
    ("Reduction", "", lambda x: np.asarray(x.sum())),
    ("Reduction", "reduction_param { operation: MEAN axis: 2 coeff: 3 }", lambda x: 3 * x.mean((2, 3))),
    ("Reduction", "reduction_param { operation: ASUM axis: 1 }", lambda x: np.abs(x).sum((1, 2, 3))),
    ("Reduction", "reduction_param { operation: SUMSQ axis: -1 }", lambda x: (x * x).sum(3)),
    ("ShuffleChannel", "shuffle_channel_param { group: 3 }", lambda x: x[:, [0, 2, 4, 1, 3, 5]]),
    ("Interp", "interp_param { zoom_factor: 2 }", lambda x: defined.bilinear(x, 13, 17)),
    ("Interp", "interp_param { shrink_factor: 2 zoom_factor: 3 }", lambda x: defined.bilinear(x, 10, 13)),
    ("Interp", "interp_param { height: 1 width: 20 }", lambda x: defined.bilinear(x, 1, 20)),
    ("Interp", "interp_param { height: 9 width: 5 pad_beg: -1 pad_end: -2 }",
     lambda x: defined.bilinear(x[:, :, 1:-2, 1:-2], 9, 5)),
    ("Upsample", "upsample_param { scale: 2 }", lambda x: x.repeat(2, 2).repeat(2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "settings", "wanted"), POINTWISE, ids=[f"{kind} {text}" for kind, text, _ in POINTWISE]
)
def test_layers_without_weights(
    tmp_path: Path, kind: str, settings: str, wanted: Callable[[np.ndarray], np.ndarray]
) -> None:
    model = one_layer(tmp_path, kind, settings)
    x = random_inputs(model)["a"]

    close(model.run({"a": x})["out"], wanted(x))


@pytest.mark.parametrize(
    ("kind", "settings", "wanted"),
    [
        ("Eltwise", "", lambda a, b, c: a + b + c),
        ("Eltwise", "eltwise_param { coeff: 2 coeff: -1 coeff: 0.5 }", lambda a, b, c: 2 * a - b + 0.5 * c),
        ("Eltwise", "eltwise_param { operation: PROD }", lambda a, b, c: a * b * c),
        ("Eltwise", "eltwise_param { operation: MAX }", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
        ("Concat", "", lambda *blobs: np.concatenate(blobs, 1)),
        ("Concat", "concat_param { axis: -1 }", lambda *blobs: np.concatenate(blobs, 3)),
        ("Concat", "concat_param { concat_dim: 0 }", lambda *blobs: np.concatenate(blobs, 0)),
    ],
)
def test_layers_that_join(tmp_path: Path, kind: str, settings: str, wanted: Callable[..., np.ndarray]) -> None:
    model = one_layer(tmp_path, kind, settings, (IMAGE,) * 3)
    inputs = random_inputs(model)

    close(model.run(inputs)["out"], wanted(*inputs.values()))


def test_slices(tmp_path: Path) -> None:
    equal = one_layer(tmp_path, "Slice", "", tops="x y z")
    chosen = one_layer(tmp_path, "Slice", "slice_param { axis: 3 slice_point: 2 slice_point: 3 }", tops="x y z")
    x = random_inputs(equal)["a"]

    for found, wanted in zip(equal.run({"a": x}).values(), np.split(x, 3, 1), strict=True):
        close(found, wanted)
    for found, wanted in zip(chosen.run({"a": x}).values(), np.split(x, [2, 3], 3), strict=True):
        close(found, wanted)


def test_crops(tmp_path: Path) -> None:
    model = one_layer(tmp_path, "Crop", "crop_param { axis: 2 offset: 1 offset: 3 }", (IMAGE, (1, 1, 4, 5)))
    same = one_layer(tmp_path, "Crop", "crop_param { axis: 1 offset: 2 }", (IMAGE, (9, 3, 4, 5)))
    x, reference = random_inputs(model).values()

    close(model.run({"a": x, "b": reference})["out"], x[:, :, 1:5, 3:8])
    close(same.run({"a": x, "b": np.zeros((9, 3, 4, 5))})["out"], x[:, 2:5, 2:6, 2:7])


def test_the_largest_are_told_by_place_or_by_value_and_of_equals_the_last(tmp_path: Path) -> None:
    flat = one_layer(tmp_path, "ArgMax", "argmax_param { top_k: 2 out_max_val: true }", ((1, 4),))
    by_axis = one_layer(tmp_path, "ArgMax", "argmax_param { axis: 1 }", ((1, 3, 1, 2),))
    values = one_layer(tmp_path, "ArgMax", "argmax_param { axis: 1 out_max_val: true }", ((1, 3, 1, 2),))
    image = np.array([[[[1, 5]], [[7, 5]], [[2, 0]]]], np.float32)

    assert flat.run({"a": np.array([[3, 9, 9, 1]])})["out"].tolist() == [[[2, 1], [9, 9]]]
    assert by_axis.run({"a": image})["out"].tolist() == [[[[1, 1]]]]
    assert values.run({"a": image})["out"].tolist() == [[[[7, 5]]]]
    assert one_layer(tmp_path, "ArgMax", "argmax_param { top_k: 3 }").outputs == {"out": (2, 1, 3, 1)}


def test_layers_with_weights_of_their_own(tmp_path: Path) -> None:
    prelu, shared = one_layer(tmp_path, "PReLU"), one_layer(tmp_path, "PReLU", "prelu_param { channel_shared: true }")
    x = random_inputs(prelu)["a"]
    embed = one_layer(tmp_path, "Embed", "embed_param { num_output: 3 input_dim: 5 }", ((2, 4),))
    words = np.array([[0, 1, 2, 3], [4, 4, 0, 1]])
    axpy = one_layer(tmp_path, "Axpy", "", ((2, 6, 1, 1), IMAGE, IMAGE))
    given = random_inputs(axpy)

    close(prelu.run({"a": x})["out"], np.where(x > 0, x, prelu.weights["out"][0][:, None, None] * x))
    close(shared.run({"a": x})["out"], np.where(x > 0, x, shared.weights["out"][0] * x))
    close(embed.run({"a": words})["out"], embed.weights["out"][0][words] + embed.weights["out"][1])
    close(axpy.run(given)["out"], given["a"] * given["b"] + given["c"])


@pytest.mark.parametrize(
    ("settings", "axes"),
    [("", (1, 2, 3)), ("across_spatial: false channel_shared: false eps: 0.1", (1,))],
)
def test_normalize(tmp_path: Path, settings: str, axes: tuple[int, ...]) -> None:
    model = one_layer(tmp_path, "Normalize", f"norm_param {{ {settings} }}")
    x = random_inputs(model)["a"]
    length = np.sqrt((x * x).sum(axes, keepdims=True) + (0.1 if "eps" in settings else 1e-10))

    close(model.run({"a": x})["out"], x / length * model.weights["out"][0].reshape(-1, 1, 1))


def test_the_normalisation_of_pyramid_networks(tmp_path: Path) -> None:
    model = one_layer(tmp_path, "BN", "bn_param { frozen: true }")
    folded = one_layer(tmp_path, "BN", "bn_param { bn_mode: INFERENCE }")
    x = random_inputs(model)["a"]
    slope, bias, mean, variance = model.weights["out"]

    close(model.run({"a": x})["out"], slope * (x - mean) / np.sqrt(variance + 1e-5) + bias)
    close(folded.run({"a": x})["out"], x * folded.weights["out"][0] + folded.weights["out"][1])


def test_layers_in_place_and_values_read_before_them(tmp_path: Path) -> None:
    text = input_text(1, 4) + layer_text("Split", "", tops="x y") + layer_text("ReLU", "", "x", "x", name="r")
    text += layer_text("Eltwise", "", "x y", "sum") + layer_text(
        "Power", "power_param { scale: 2 }", "x", "x", name="p"
    )
    text += layer_text("Eltwise", "", "x sum", "out")
    model = made_model(tmp_path, text)
    x = np.array([[-1, 2, -3, 4]], np.float32)

    close(model.run({"data": x})["out"], 2 * np.maximum(x, 0) + np.maximum(x, 0) + x)


def test_other_sizes_and_batches_than_those_of_the_file(tmp_path: Path) -> None:
    text = input_text(1, 6, 12, 12) + layer_text(
        "Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", tops="c"
    )
    model = made_model(tmp_path, text + layer_text("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", "c"))
    x = np.random.default_rng(3).normal(0, 1, (3, 6, 15, 10)).astype(np.float32)
    weight, bias = model.weights["c"]
    wanted, _ = defined.pooling(
        defined.convolution(x, weight, bias, (1, 1), (0, 0), (1, 1), 1), (2, 2), (2, 2), (0, 0), mean=False
    )

    close(model.run({"data": x})["out"], wanted)
    with torch.inference_mode():
        close(model.module()(torch.from_numpy(x))[0].numpy(), wanted)


def test_a_module_for_a_processor_computes_the_same_and_may_move_on(tmp_path: Path) -> None:
    text = input_text(2, 3, 12, 12) + layer_text(
        "Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", tops="c"
    )
    text += (
        layer_text("ReLU", "", "c", "c", name="r")
        + layer_text("Concat", "", "c c", "out")
        + layer_text("Split", "", "data", "in")
    )
    model = made_model(tmp_path, text)
    inputs = random_inputs(model)
    module = model.module()

    assert [name for name, _ in module.named_children()] == ["c", "out", "in"]
    with torch.inference_mode():
        for found, wanted in zip(module(torch.from_numpy(inputs["data"])), model.run(inputs).values(), strict=True):
            close(found.numpy(), wanted)
        assert module.to("meta")(torch.empty(2, 3, 12, 12, device="meta"))[0].shape == (2, 8, 10, 10)


def fire(between: str, outputs: int, group: int = 1) -> str:
    """Two convolutions joined, something in between, and a third."""
    settings = "convolution_param { num_output: 8 kernel_size: SIZE pad: PAD }"
    text = input_text(2, 4, 9, 9)
    for name, size, pad in (("one", "1", "0"), ("three", "3", "1")):
        text += layer_text("Convolution", settings.replace("SIZE", size).replace("PAD", pad), "data", name)
        text += layer_text("ReLU", "", name, name, name=f"relu_{name}")
    text += layer_text("Concat", "", "one three", "join") + between.replace("TOP", "mid")
    last = f"convolution_param {{ num_output: {outputs} kernel_size: 3 stride: 2 group: {group} }}"
    return (
        text
        + layer_text("Convolution", last, "mid" if between else "join", "out")
        + layer_text("ReLU", "", "out", "out", name="r")
    )


@pytest.mark.parametrize(
    "between",
    [
        "",
        layer_text("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", "join", "TOP"),
        layer_text("Dropout", "", "join", "TOP"),
    ],
)
def test_blobs_that_are_joined_only_to_be_squeezed_stay_apart(tmp_path: Path, between: str) -> None:
    model = made_model(tmp_path, fire(between, 6))
    inputs = random_inputs(model)
    types = [layer.type for layer in apart(model.network).layers]

    assert SUMMED in types
    assert "Concat" not in types
    with torch.inference_mode():
        close(model.module()(torch.from_numpy(inputs["data"]))[0].numpy(), model.run(inputs)["out"])


@pytest.mark.parametrize(("outputs", "group"), [(10, 1), (8, 2)])
def test_blobs_that_are_joined_for_more_are_joined(tmp_path: Path, outputs: int, group: int) -> None:
    network = made_model(tmp_path, fire("", outputs, group)).network

    assert apart(network) == network
