"""How fast are Caffe models on a processor, ours beside OpenCV 4's reader?

    python caffe_cpu.py FOLDER [--threads 2] [--repeats 200] [--batch 1] [--output results/rows.jsonl]

FOLDER holds pairs NAME.prototxt and NAME.caffemodel. Both run the same images in one process, turn by turn, with the same number of
threads; medians are told, and the largest difference between the outputs. Needs opencv-python-headless 4.
"""

import argparse
import json
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
import torch

from tonnage.program.caffe import load

WARM_UPS = 10
SIZES = {"det1": (1, 3, 240, 320)}  # a fully convolutional network: its prototxt names the smallest image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cv2.setNumThreads(options.threads)
    common = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "threads": options.threads, "batch": options.batch,
        "torch": torch.__version__, "opencv": cv2.__version__, "processor": _processor(),
    }  # fmt: skip
    print("model            input            ours, ms  OpenCV, ms   ratio   difference")
    for prototxt in sorted(options.folder.glob("*.prototxt")):
        row = compared(prototxt, options.batch, options.repeats)
        print(
            "{model:16} {shape:16} {ours_ms:8.2f} {opencv_ms:11.2f} {ratio:7.2f} {difference:12.1e}".format(**row),
            flush=True,
        )
        if options.output:
            with options.output.open("a") as file:
                file.write(json.dumps(row | common) + "\n")


def compared(prototxt: Path, batch: int, repeats: int) -> dict[str, Any]:
    weights = prototxt.with_suffix(".caffemodel")
    named = load(prototxt, weights)
    name, shape = next(iter(named.inputs.items()))
    shape = (batch, *SIZES.get(prototxt.stem, shape)[1:])
    model = load(prototxt, weights, shapes={name: shape})
    image = np.random.default_rng(0).normal(0, 50, shape).astype(np.float32)
    module, given = model.module(), torch.from_numpy(image)
    net = cv2.dnn.readNetFromCaffe(str(prototxt), str(weights))
    outputs = list(model.outputs)

    def ours() -> list[np.ndarray]:
        with torch.inference_mode():
            return [each.numpy() for each in module(given)]

    def theirs() -> list[np.ndarray]:
        net.setInput(image)
        return list(net.forward(outputs))

    pairs = zip(ours(), theirs(), strict=True)
    difference = max(float(np.abs(a.reshape(-1) - b.reshape(-1)).max()) for a, b in pairs)
    seconds: dict[str, list[float]] = {"ours": [], "opencv": []}
    for turn in range(WARM_UPS + repeats):
        for key, run in (("ours", ours), ("opencv", theirs)):
            start = time.perf_counter()
            run()
            if turn >= WARM_UPS:
                seconds[key].append(time.perf_counter() - start)
    mine, other = (median(seconds[key]) * 1e3 for key in ("ours", "opencv"))
    return {
        "model": prototxt.stem, "shape": "x".join(map(str, shape)), "repeats": repeats, "ours_ms": mine,
        "opencv_ms": other, "ratio": other / mine, "difference": difference,
    }  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


if __name__ == "__main__":
    main()
