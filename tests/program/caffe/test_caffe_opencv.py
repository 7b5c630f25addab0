"""Whole networks against OpenCV's reader of Caffe models, where it computes what Caffe defines."""

from pathlib import Path

import numpy as np
import pytest
from caffe_files import input_text, layer_text, made_model, random_inputs

torch = pytest.importorskip("torch")
cv2 = pytest.importorskip("cv2", reason="opencv-python-headless 4 is not installed")
if not cv2.__version__.startswith("4."):
    pytest.skip("OpenCV reads Caffe models up to version 4", allow_module_level=True)


def conv(name: str, bottom: str, outputs: int, kernel: int, more: str = "") -> str:
    return layer_text(
        "Convolution", f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} {more} }}", bottom, name
    )


def relu(blob: str) -> str:
    return layer_text("ReLU", "", blob, blob, name=f"relu_{blob}")


def pool(name: str, bottom: str, settings: str) -> str:
    return layer_text("Pooling", f"pooling_param {{ {settings} }}", bottom, name)


def norm(blob: str) -> str:
    batch_norm = layer_text("BatchNorm", "batch_norm_param { use_global_stats: true }", blob, blob, name=f"bn_{blob}")
    return batch_norm + layer_text("Scale", "scale_param { bias_term: true }", blob, blob, name=f"scale_{blob}")


def alexnet() -> str:
    text = input_text(2, 3, 67, 67) + conv("c1", "data", 8, 11, "stride: 4") + relu("c1")
    text += layer_text("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }", "c1", "n1")
    text += (
        pool("p1", "n1", "pool: MAX kernel_size: 3 stride: 2") + conv("c2", "p1", 12, 5, "pad: 2 group: 2") + relu("c2")
    )
    text += pool("p2", "c2", "pool: MAX kernel_size: 3 stride: 2")
    text += layer_text("InnerProduct", "inner_product_param { num_output: 20 }", "p2", "f6") + relu("f6")
    text += layer_text("Dropout", "dropout_param { dropout_ratio: 0.5 }", "f6", "f6", name="drop")
    return (
        text
        + layer_text("InnerProduct", "inner_product_param { num_output: 7 }", "f6", "f7")
        + layer_text("Softmax", "", "f7", "prob")
    )


def inception() -> str:
    text = input_text(1, 3, 33, 33) + conv("c1", "data", 8, 7, "pad: 3 stride: 2") + relu("c1")
    text += pool("p1", "c1", "pool: MAX kernel_size: 3 stride: 2") + conv("a", "p1", 4, 1) + relu("a")
    text += conv("b1", "p1", 3, 1) + relu("b1") + conv("b", "b1", 6, 3, "pad: 1") + relu("b")
    text += pool("d1", "p1", "pool: MAX kernel_size: 3 stride: 1 pad: 1") + conv("d", "d1", 5, 1) + relu("d")
    return text + layer_text("Concat", "", "a b d", "join") + pool("out", "join", "pool: AVE kernel_size: 8 stride: 1")


def residual() -> str:
    text = (
        input_text(2, 3, 20, 20)
        + conv("c1", "data", 8, 3, "pad: 1 stride: 2 bias_term: false")
        + norm("c1")
        + relu("c1")
    )
    text += conv("c2", "c1", 8, 3, "pad: 1 bias_term: false") + norm("c2") + relu("c2")
    text += (
        conv("c3", "c2", 8, 1, "bias_term: false")
        + norm("c3")
        + layer_text("Eltwise", "", "c1 c3", "sum")
        + relu("sum")
    )
    return (
        text
        + pool("gap", "sum", "pool: AVE global_pooling: true")
        + layer_text("InnerProduct", "inner_product_param { num_output: 4 }", "gap")
    )


def mobile() -> str:
    text = (
        input_text(1, 3, 24, 24)
        + conv("c1", "data", 16, 3, "pad: 1 stride: 2 bias_term: false")
        + norm("c1")
        + relu("c1")
    )
    text += conv("dw", "c1", 16, 3, "pad: 1 group: 16 bias_term: false") + norm("dw") + relu("dw")
    text += conv("pw", "dw", 24, 1, "bias_term: false") + norm("pw") + relu("pw")
    return (
        text
        + layer_text("PReLU", "", "pw", "act")
        + (
            layer_text("Slice", "slice_param { slice_point: 10 }", "act", "x y")
            + layer_text("Concat", "", "y x", "out")
        )
    )


def segmentation() -> str:
    text = input_text(1, 3, 32, 32) + conv("c1", "data", 8, 3, "pad: 1") + relu("c1")
    text += (
        pool("p1", "c1", "pool: MAX kernel_size: 2 stride: 2")
        + conv("c2", "p1", 6, 3, "pad: 2 dilation: 2")
        + relu("c2")
    )
    up = "convolution_param { num_output: 6 kernel_size: 4 stride: 2 bias_term: false group: 6 }"
    text += layer_text("Deconvolution", up, "c2", "up")
    return text + layer_text("Crop", "crop_param { axis: 2 offset: 1 }", "up data", "score")


def pyramid() -> str:
    text = input_text(1, 3, 24, 24) + conv("c1", "data", 8, 3, "pad: 1") + relu("c1")
    text += pool("p1", "c1", "pool: AVE kernel_size: 12 stride: 12") + conv("s1", "p1", 4, 1) + relu("s1")
    text += layer_text("Interp", "interp_param { height: 24 width: 24 }", "s1", "i1")
    return text + layer_text("Concat", "", "c1 i1", "join") + conv("out", "join", 3, 1)


def head() -> str:
    text = input_text(1, 3, 19, 19) + conv("c1", "data", 8, 3) + layer_text("PReLU", "", "c1", "c1", name="a1")
    text += pool("p1", "c1", "pool: MAX kernel_size: 3 stride: 2")
    text += layer_text("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", "p1", "turned")
    text += layer_text("Flatten", "flatten_param { axis: 1 }", "turned", "flat")
    text += layer_text("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 4 } }", "flat", "rows")
    return text + layer_text("Softmax", "softmax_param { axis: 2 }", "rows", "prob")


def detector() -> str:
    text = input_text(1, 3, 32, 32) + conv("c1", "data", 8, 3, "pad: 1 stride: 4") + relu("c1")
    text += layer_text("Normalize", "norm_param { across_spatial: false channel_shared: false }", "c1", "n1")
    for name, outputs in (("loc", 16), ("conf", 12)):
        text += conv(name, "n1", outputs, 3, "pad: 1")
        text += layer_text("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", name, f"{name}_p")
        text += layer_text("Flatten", "flatten_param { axis: 1 }", f"{name}_p", f"{name}_f")
    settings = "min_size: 8 max_size: 14 aspect_ratio: 2 flip: true clip: false variance: [0.1, 0.1, 0.2, 0.2]"
    text += layer_text("PriorBox", f"prior_box_param {{ {settings} }}", "n1 data", "prior")
    text += layer_text("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }", "conf_f", "conf_r")
    text += layer_text("Softmax", "softmax_param { axis: 2 }", "conf_r", "conf_s") + layer_text(
        "Flatten", "", "conf_s", "conf_t"
    )
    settings = "num_classes: 3 share_location: true background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 100 }"
    settings += " code_type: CENTER_SIZE keep_top_k: 20 confidence_threshold: 0.35"
    return text + layer_text("DetectionOutput", f"detection_output_param {{ {settings} }}", "loc_f conf_t prior", "out")


NETWORKS = (alexnet, inception, residual, mobile, segmentation, pyramid, head, detector)


@pytest.mark.parametrize("make", NETWORKS)
def test_whole_networks_agree_with_opencv(tmp_path: Path, make: object) -> None:
    model = made_model(tmp_path, make())
    inputs = random_inputs(model)
    net = cv2.dnn.readNetFromCaffe(str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel"))
    net.setInput(inputs["data"])
    names = list(model.outputs)
    with torch.inference_mode():
        compiled = [each.numpy() for each in model.module()(torch.from_numpy(inputs["data"]))]

    for name, wanted, found in zip(names, net.forward(names), model.run(inputs).values(), strict=True):
        assert found.size == wanted.size, name
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-4, rtol=1e-4)
    for fast, slow in zip(compiled, model.run(inputs).values(), strict=True):
        np.testing.assert_allclose(fast, slow, atol=1e-4, rtol=1e-4)
