"""Makes a folder of two small models, for `tonnage serve`, and asks the server that serves them.

python examples/serving.py make models
tonnage serve models
python examples/serving.py ask http://127.0.0.1:8000
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from urllib.request import urlopen

CAFFE = """
name: "brightness"
input: "image"
input_shape { dim: 1 dim: 3 dim: 32 dim: 32 }
layer { name: "mean" type: "Pooling" bottom: "image" top: "mean" pooling_param { pool: AVE global_pooling: true } }
layer { name: "scale" type: "Scale" bottom: "mean" top: "scale" }
layer { name: "share" type: "Softmax" bottom: "scale" top: "share" }
"""


def make(folder: Path) -> None:
    """A PyTorch model that takes any number of rows, and a Caffe network."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3), torch.nn.Softmax(1)
    ).eval()
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(model, (torch.zeros(2, 4),), dynamic_shapes=({0: rows},))
    version = folder / "classifier" / "1"
    version.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, version / "model.pt2")

    version = folder / "brightness" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.prototxt").write_text(CAFFE)
    (version / "model.caffemodel").write_bytes(caffemodel("scale", [0.1, 0.1, 0.1]))


def caffemodel(layer: str, weights: list[float]) -> bytes:
    """What Caffe would have saved: one layer with one blob, in protobuf's wire format."""
    shape, values = bytes([0x0A, 1, len(weights)]), struct.pack(f"<{len(weights)}f", *weights)
    blob = bytes([0x3A, len(shape)]) + shape + bytes([0x2A, len(values)]) + values
    named = bytes([0x0A, len(layer)]) + layer.encode() + bytes([0x3A, len(blob)]) + blob
    return bytes([0xA2, 0x06, len(named)]) + named


def ask(url: str) -> None:
    with urlopen(f"{url}/v2/models/classifier") as answer:
        described = json.load(answer)["inputs"][0]
    rows = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]
    inputs = [{"name": described["name"], "datatype": "FP32", "shape": [2, 4], "data": rows}]
    with urlopen(f"{url}/v2/models/classifier/infer", json.dumps({"inputs": inputs}).encode()) as answer:
        output = json.load(answer)["outputs"][0]
    print(output["name"], output["shape"], [round(value, 3) for value in output["data"]])


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(Path(sys.argv[2]))
    else:
        ask(sys.argv[2])
