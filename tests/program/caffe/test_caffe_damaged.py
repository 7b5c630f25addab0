"""Damaged files: a network, or one sentence that names the file; never anything else."""

import random
from pathlib import Path

import pytest
from caffe_files import caffemodel, input_text, layer_text, random_weights

from tonnage.errors import TonnageError
from tonnage.program.caffe import load

TEXT = input_text(1, 3, 12, 12) + layer_text(
    "Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", tops="conv"
)
TEXT += layer_text("BatchNorm", "", "conv", "conv", name="bn") + layer_text("ReLU", "", "conv", "conv", name="relu")
TEXT += layer_text("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", "conv", "pool")
TEXT += layer_text("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }", "pool", "flat")
TEXT += layer_text("InnerProduct", "inner_product_param { num_output: 5 }", "flat", "ip")
PIECES = [
    b"{",
    b"}",
    b'"',
    b":",
    b"layer",
    b"-1",
    b"0",
    b"99999999999999999999",
    b"4294967295",
    b"nan",
    b"[",
    b"\x00",
    b"\xff",
    b"#",
]


def damaged(content: bytes, chance: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(made) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            made[place : place + chance.randrange(8)] = chance.choice(PIECES)
        elif kind == 1:
            del made[place : place + chance.randint(1, 60)]
        elif kind == 2:
            made[place:place] = made[chance.randrange(len(made) + 1) :][: chance.randint(1, 200)]
        elif place < len(made):
            made[place] = chance.randrange(256)
    return bytes(made)


@pytest.mark.parametrize("which", ["prototxt", "caffemodel"])
def test_damaged_files_are_read_or_refused_in_one_sentence(tmp_path: Path, which: str) -> None:
    prototxt, weights = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    prototxt.write_text(TEXT)
    weights.write_bytes(caffemodel(random_weights(load(prototxt).network)))
    contents = {"prototxt": TEXT.encode(), "caffemodel": weights.read_bytes()}
    read, told = 0, []
    for seed in range(1500):
        (tmp_path / f"net.{which}").write_bytes(damaged(contents[which], random.Random(seed)))
        try:
            load(prototxt, weights)
            read += 1
        except TonnageError as error:
            told.append(str(error))

    assert read
    assert told
    assert not [sentence for sentence in told if "\n" in sentence or str(tmp_path) not in sentence]
