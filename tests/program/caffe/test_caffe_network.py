"""What becomes of a prototxt: phases, inputs, outputs, shapes; and every way in which it can be wrong, by layer, line."""

from pathlib import Path

import numpy as np
import pytest
from caffe_files import caffemodel, input_text, layer_text, made_model, random_weights

from tonnage.errors import InvalidFile, NotFound, TonnageError, UsageError
from tonnage.program.caffe import load

CONV = "\n" + layer_text("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", tops="conv")
LENET = """
name: "LeNet"
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TRAIN }
        data_param { source: "train_lmdb" batch_size: 64 backend: LMDB } transform_param { scale: 0.00390625 } }
layer { name: "mnist" type: "Data" top: "data" top: "label" include { phase: TEST }
        data_param { source: "test_lmdb" batch_size: 100 backend: LMDB } transform_param { scale: 0.00390625 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 }
        convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1" inner_product_param { num_output: 10 } }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" include { phase: TRAIN } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip1" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
"""


def saved(folder: Path, text: str) -> Path:
    path = folder / "net.prototxt"
    path.write_text(text)
    return path


def test_a_network_to_train_is_read_for_inference(tmp_path: Path) -> None:
    model = load(saved(tmp_path, LENET), shapes={"data": (100, 1, 28, 28)})

    assert [layer.name for layer in model.network.layers] == ["conv1", "pool1", "ip1"]
    assert model.inputs == {"data": (100, 1, 28, 28)}
    assert model.outputs == {"ip1": (100, 10)}


def test_a_database_does_not_tell_its_sizes_but_the_caller_may(tmp_path: Path) -> None:
    path = saved(tmp_path, LENET)

    with pytest.raises(UsageError, match="line 5: the size of input data is not known") as refused:
        load(path)
    assert "--size data.1=SIZE --size data.2=SIZE --size data.3=SIZE" in refused.value.hint
    assert load(path, sizes={"data.1": 1, "data.2": 28, "data.3": 28}, batch=7).inputs == {"data": (7, 1, 28, 28)}


def test_weights_tell_the_channels_of_a_database(tmp_path: Path) -> None:
    path = saved(tmp_path, LENET)
    weights = tmp_path / "net.caffemodel"
    weights.write_bytes(caffemodel(random_weights(load(path, shapes={"data": (1, 1, 28, 28)}).network)))

    assert load(path, weights, sizes={"data.2": 28, "data.3": 28}).inputs == {"data": (100, 1, 28, 28)}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ('type: "Data" data_param { batch_size: 8 } transform_param { crop_size: 227 }', (8, 3, 227, 227)),
        ('type: "Data" data_param { batch_size: 8 crop_size: 64 }', (8, 3, 64, 64)),
        ('type: "ImageData" image_data_param { batch_size: 2 new_height: 30 new_width: 40 is_color: false }',
         (2, 1, 30, 40)),
        ('type: "MemoryData" memory_data_param { batch_size: 1 channels: 2 height: 13 width: 14 }', (1, 2, 13, 14)),
        ('type: "DummyData" dummy_data_param { num: 3 channels: 4 height: 15 width: 16 }', (3, 4, 15, 16)),
        ('type: "DummyData" dummy_data_param { shape { dim: 3 dim: 4 dim: 5 dim: 6 } }', (3, 4, 5, 6)),
        ('type: "AnnotatedData" data_param { batch_size: 8 } transform_param { resize_param { height: 300 width: 200 } }',
         (8, 3, 300, 200)),
    ],
)  # fmt: skip
def test_layers_that_bring_data_become_inputs(tmp_path: Path, text: str, shape: tuple[int, ...]) -> None:
    model = load(saved(tmp_path, f'layer {{ name: "d" top: "data" top: "label" {text} }} {CONV}'))

    assert model.inputs == {"data": shape}


@pytest.mark.parametrize(
    ("head", "shapes"),
    [
        ('input: "data" input_dim: 1 input_dim: 3 input_dim: 9 input_dim: 8', {"data": (1, 3, 9, 8)}),
        ('input: "data" input_shape { dim: [2, 3, 9, 8] }', {"data": (2, 3, 9, 8)}),
        ('input: "data" input: "info" input_shape { dim: [2, 3, 9, 8] } input_shape { dim: 1 dim: 3 }',
         {"data": (2, 3, 9, 8), "info": (1, 3)}),
    ],
)  # fmt: skip
def test_inputs_at_the_head_of_a_file(tmp_path: Path, head: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert load(saved(tmp_path, head + CONV)).inputs == shapes


def test_layers_are_chosen_by_stage_and_level(tmp_path: Path) -> None:
    rules = {
        "a": "include { stage: \"deploy\" }", "b": "include { not_stage: \"deploy\" }", "c": "exclude { min_level: 2 }",
        "d": "include { max_level: 1 phase: TEST } ", "e": "exclude { phase: TRAIN }",
    }  # fmt: skip
    text = 'state { stage: "deploy" level: 2 }' + input_text(1, 2)
    text += "".join(layer_text("ReLU", rule, tops=name) for name, rule in rules.items())

    assert [layer.name for layer in load(saved(tmp_path, text)).network.layers] == ["a", "e"]


def test_silence_reads_what_would_be_an_output(tmp_path: Path) -> None:
    text = input_text(1, 4) + layer_text("Slice", "", tops="x y") + 'layer { name: "s" type: "Silence" bottom: "x" }'

    assert load(saved(tmp_path, text)).outputs == {"y": (1, 2)}


def test_a_batch_is_the_first_axis_of_all_inputs(tmp_path: Path) -> None:
    text = input_text(1, 4, name="a") + input_text(1, 4, name="b") + layer_text("Eltwise", "", "a b")

    assert load(saved(tmp_path, text), batch=5).outputs == {"out": (5, 4)}


IMAGE = input_text(1, 3, 8, 8)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (IMAGE + "\n" + layer_text("Python", name="mine"), "line 3: layer mine (Python) is of a type that is not"),
        (IMAGE + CONV.replace("num_output: 4", ""), "layer conv (Convolution) does not say its num_output"),
        (IMAGE + CONV.replace("kernel_size: 3", ""), "does not say its kernel_size"),
        (IMAGE + CONV.replace("kernel_size: 3", "kernel_size: 0"), "kernel, stride or dilation of 0"),
        (IMAGE + CONV.replace("kernel_size: 3", "kernel_size: 9"), "would make a blob of 1x4x0x0"),
        (IMAGE + CONV.replace("kernel_size: 3", "kernel_size: 3 group: 2"), "cannot divide 3 channels and 4"),
        (IMAGE + CONV.replace("num_output: 4", "num_output: 4000000000"), "more than 2,147,483,647 numbers"),
        (IMAGE + layer_text("ReLU", "", "nothing"), "reads nothing, which no layer before it makes"),
        (IMAGE + layer_text("Concat", "", "data data", "data2") + layer_text("ReLU", "", "data", "data2"),
         "makes data2, which another layer makes already"),
        (IMAGE + layer_text("Eltwise"), "has 1 bottoms, not 2 or more"),
        (IMAGE + layer_text("Pooling", "pooling_param { kernel_size: 2 pad: 2 }"), "pads by 2x2, not less than"),
        (IMAGE + layer_text("Reshape", "reshape_param { shape { dim: 7 dim: -1 } }"), "cannot make 7x-1 of 1x3x8x8"),
        (IMAGE + layer_text("Concat", "concat_param { axis: 7 }", "data data"), "names axis 7 of 1x3x8x8"),
        (IMAGE + layer_text("Slice", "slice_param { slice_point: 5 }", tops="a b"), "points that do not grow from 0 to 3"),
        (IMAGE + layer_text("LRN", "lrn_param { local_size: 4 }"), "has an even local_size of 4"),
        (IMAGE + layer_text("ReLU", "include { phase: TEST } exclude { phase: TRAIN }"), "rules to include and rules to"),
        (IMAGE + CONV + CONV.replace('top: "conv"', 'top: "b"'), "has the name of another layer with weights"),
        (IMAGE + 'layer { name: "x" }', "layer x does not say its type"),
        (IMAGE, "has no layers that compute anything"),
        ('input: "a" input_dim: 3' + CONV, "1 inputs need 4 input_dim, not 1"),
        ("", "has no layers that compute anything"),
        (input_text(1, 3, 0, 8) + CONV, "would make a blob of 1x3x0x8"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_are_refused_by_layer_and_line(tmp_path: Path, text: str, told: str) -> None:
    path = saved(tmp_path, text)

    with pytest.raises(InvalidFile) as refused:
        load(path)
    assert refused.value.message.startswith(str(path))
    assert told in refused.value.message


def test_sizes_of_inputs_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, IMAGE + CONV)

    with pytest.raises(UsageError, match="there is no input x"):
        load(path, shapes={"x": (1, 2)})
    with pytest.raises(UsageError, match=r"has 4 axes, so there is no data\.9"):
        load(path, sizes={"data.9": 4})


def test_files_that_are_missing_or_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        load(tmp_path / "none.prototxt")
    (tmp_path / "binary.prototxt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidFile, match="is no text"):
        load(tmp_path / "binary.prototxt")


# -- weights ----------------------------------------------------------------------------------------------------------


def with_weights(folder: Path, text: str, weights: dict[str, list[np.ndarray]], form: str = "new") -> object:
    (folder / "net.caffemodel").write_bytes(caffemodel(weights, form))
    return load(saved(folder, text), folder / "net.caffemodel")


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"conv": [np.zeros((4, 3, 5, 5)), np.zeros(4)]}, "has weights of 4x3x3x3, but of 4x3x5x5 in "),
        ({"conv": [np.zeros((4, 3, 3, 3))]}, "has 2 blobs of weights, but 1 in "),
        ({"other": [np.zeros(3)]}, "has weights of 4x3x3x3, but none in "),
    ],
)
def test_weights_that_do_not_match_are_refused_with_both_shapes(
    tmp_path: Path, weights: dict[str, list[np.ndarray]], told: str
) -> None:
    with pytest.raises(InvalidFile) as refused:
        with_weights(tmp_path, IMAGE + CONV, weights)

    assert f"line 3: layer conv (Convolution) {told}" in refused.value.message


def test_blobs_of_four_axes_fit_weights_of_fewer(tmp_path: Path) -> None:
    text = input_text(1, 6) + layer_text("InnerProduct", "inner_product_param { num_output: 2 }", name="ip")
    model = with_weights(tmp_path, text, {"ip": [np.ones((2, 6)), np.ones(2)]}, "old")

    assert [array.shape for array in model.weights["ip"]] == [(2, 6), (2,)]


def test_layers_that_a_file_does_not_name_begin_as_the_prototxt_says(tmp_path: Path) -> None:
    up = 'num_output: 3 group: 3 kernel_size: 4 stride: 2 bias_term: false weight_filler { type: "bilinear" }'
    text = IMAGE + layer_text("Deconvolution", f"convolution_param {{ {up} }}") + CONV
    model = with_weights(tmp_path, text, {"conv": [np.zeros((4, 3, 3, 3)), np.zeros(4)]})

    row = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(model.weights["out"][0][2, 0], np.outer(row, row))


def test_a_network_without_weights_has_shapes_but_does_not_run(tmp_path: Path) -> None:
    model = load(saved(tmp_path, IMAGE + CONV))

    assert model.outputs == {"conv": (1, 4, 6, 6)}
    with pytest.raises(UsageError, match="has no weights"):
        model.module()


def test_inputs_of_wrong_number_names_or_shapes_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    model = made_model(tmp_path, IMAGE + CONV)

    for inputs in (
        {},
        {"image": np.zeros((1, 3, 8, 8))},
        {"data": np.zeros((3, 8, 8))},
        {"data": np.zeros((1, 4, 8, 8))},
    ):
        with pytest.raises(TonnageError):
            model.run(inputs)
