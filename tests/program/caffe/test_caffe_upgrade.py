"""Old forms of networks are read as what they became."""

from pathlib import Path

import numpy as np
import pytest
from caffe_files import caffemodel

from tonnage.errors import InvalidFile
from tonnage.program.caffe import load

HEAD = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 10 input_dim: 10\n'
V2 = (
    HEAD
    + """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 group: 1 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 3 alpha: 0.1 } }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "both" type: "Concat" bottom: "pool" bottom: "pool" top: "both" concat_param { concat_dim: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "both" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
)
V1 = (
    HEAD
    + """
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2 weight_decay: 1
         convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 } }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "norm" type: LRN bottom: "conv" top: "norm" lrn_param { local_size: 3 alpha: 0.1 } }
layers { name: "pool" type: POOLING bottom: "norm" top: "pool" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layers { name: "both" type: CONCAT bottom: "pool" bottom: "pool" top: "both" }
layers { name: "ip" type: INNER_PRODUCT bottom: "both" top: "ip" inner_product_param { num_output: 5 } }
layers { name: "prob" type: SOFTMAX bottom: "ip" top: "prob" }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "ip" bottom: "label" include { phase: TRAIN } }
"""
)
V0 = (
    HEAD
    + """
layers { layer { name: "pad1" type: "padding" pad: 1 } bottom: "data" top: "padded" }
layers { layer { name: "conv" type: "conv" num_output: 4 kernelsize: 3 stride: 2 biasterm: true
                 weight_filler { type: "gaussian" std: 0.01 } blobs_lr: 1. blobs_lr: 2. } bottom: "padded" top: "conv" }
layers { layer { name: "relu" type: "relu" } bottom: "conv" top: "conv" }
layers { layer { name: "norm" type: "lrn" local_size: 3 alpha: 0.1 beta: 0.75 } bottom: "conv" top: "norm" }
layers { layer { name: "pool" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "norm" top: "pool" }
layers { layer { name: "both" type: "concat" concat_dim: 1 } bottom: "pool" bottom: "pool" top: "both" }
layers { layer { name: "ip" type: "innerproduct" num_output: 5 } bottom: "both" top: "ip" }
layers { layer { name: "prob" type: "softmax" } bottom: "ip" top: "prob" }
"""
)


@pytest.mark.parametrize(("text", "version"), [(V1, 1), (V0, 0)])
def test_old_networks_compute_what_new_ones_do(tmp_path: Path, text: str, version: int) -> None:
    pytest.importorskip("torch")
    random = np.random.default_rng(5)
    weights = {
        "conv": [random.normal(size=(4, 3, 3, 3)), random.normal(size=4)],
        "ip": [random.normal(size=(5, 32)), random.normal(size=5)],
    }
    image = {"data": random.normal(size=(1, 3, 10, 10)).astype(np.float32)}
    found = []
    for name, content, form, number in (("new", V2, "new", 2), ("old", text, "old", version)):
        (tmp_path / f"{name}.prototxt").write_text(content)
        (tmp_path / f"{name}.caffemodel").write_bytes(caffemodel(weights, form, number))
        found.append(load(tmp_path / f"{name}.prototxt", tmp_path / f"{name}.caffemodel").run(image))

    assert list(found[0]) == list(found[1]) == ["prob"]
    np.testing.assert_array_equal(found[0]["prob"], found[1]["prob"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('layers { type: RELU } layer { type: "ReLU" }', "layers of the old form (layers) stand among new ones (layer)"),
        ('layers { layer { type: "unheard" } }', "layers of type 'unheard' are unknown to this old form"),
        ('\nlayers { layer { type: "padding" } }', "line 2: a padding layer has one bottom and one top"),
        ('layers { layer { type: "padding" } bottom: "a" top: "b" } layers { layer { type: "relu" } bottom: "b" }',
         "relu layers cannot read a padding layer"),
        ("layers { type: UNHEARD }", "type is UNHEARD, not one of"),
    ],
)  # fmt: skip
def test_old_networks_that_cannot_be_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "net.prototxt").write_text(text)

    with pytest.raises(InvalidFile) as refused:
        load(tmp_path / "net.prototxt")
    assert told in refused.value.message
