"""How fast are Caffe models on a processor, ours beside OpenCV 4's reader?

    python caffe_cpu.py [FOLDER ...] [--zoo] [--only NAME ...] [--threads 1 2] [--repeats 30] [--batch 1] [--output ROWS.jsonl]

A FOLDER holds pairs NAME.prototxt and NAME.caffemodel; `--zoo` adds the classic networks of zoo.py with random weights.
Both readers run the same images in one process, five in a row and turn by turn, with the same number of threads. Medians and minima are told,
and the largest difference between the outputs as a part of their largest number, or of 1. The bound is the time of all
multiplications and additions at the speed of a product of large matrices; only Winograd's method can be below it. Needs opencv-python-headless 4.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import torch
import zoo
from torch.utils.flop_counter import FlopCounterMode

from tonnage.program.caffe import load

WARM_UPS, IN_A_ROW = 2, 5  # threads of the other reader still spin when one begins
MOST_SECONDS = 20.0  # for one network and number of threads
SIZES = {"det1": (1, 3, 240, 320)}  # a fully convolutional network: its prototxt names the smallest image
HEAD = (
    "network          input            threads   ours, ms  OpenCV, ms  bound, ms   ratio  of minima  difference  runs"
)
LINE = (
    "{model:16} {shape:16} {threads:7} {ours_ms:10.2f} {opencv_ms:11.2f} {bound_ms:10.2f} {ratio:7.2f} {minimum_ratio:10.2f} "
    "{difference:11.1e}  {way}"
)


def main() -> None:
    options = _options()
    common = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "torch": torch.__version__,
        "opencv": cv2.__version__, "processor": _processor(),
    }  # fmt: skip
    print(HEAD)
    with TemporaryDirectory() as folder:
        for prototxt in _networks(options, Path(folder)):
            for threads in options.threads:
                try:
                    row = compared(prototxt, options.batch, options.repeats, threads)
                except cv2.error as error:
                    print(f"{prototxt.stem:16} OpenCV cannot run it: {' '.join(str(error).split())[-120:]}", flush=True)
                    continue
                print(LINE.format(**row), flush=True)
                if options.output:
                    with options.output.open("a") as file:
                        file.write(json.dumps(row | common) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--zoo", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def _networks(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    """One after the other, so that the files of only one are there at a time."""
    for each in options.folders:
        yield from (path for path in sorted(each.glob("*.prototxt")) if not options.only or path.stem in options.only)
    for name in zoo.NETWORKS if options.zoo else ():
        if not options.only or name in options.only:
            prototxt = zoo.write(folder, name)
            yield prototxt
            for path in (prototxt, prototxt.with_suffix(".caffemodel")):
                path.unlink()


def compared(prototxt: Path, batch: int, repeats: int, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    ours, theirs, shape, way = _readers(prototxt, batch)
    difference = max(_difference(a, b) for a, b in zip(ours(), theirs(), strict=True))
    seconds: dict[str, list[float]] = {"ours": [], "opencv": []}
    deadline = time.perf_counter() + MOST_SECONDS
    for turn in range(-(-repeats // IN_A_ROW)):
        for key, run in (("ours", ours), ("opencv", theirs)):
            for _ in range(WARM_UPS):
                run()
            for _ in range(IN_A_ROW):
                start = time.perf_counter()
                run()
                seconds[key].append(time.perf_counter() - start)
        if turn and time.perf_counter() > deadline:
            break
    bound = _operations(prototxt, shape) / _peak()
    (mine, least), (other, its_least) = ((median(each) * 1e3, min(each) * 1e3) for each in seconds.values())
    return {
        "model": prototxt.stem, "shape": "x".join(map(str, shape)), "batch": batch, "threads": threads, "way": way,
        "repeats": len(seconds["ours"]), "ours_ms": mine, "opencv_ms": other, "ratio": other / mine,
        "ours_minimum_ms": least, "opencv_minimum_ms": its_least, "minimum_ratio": its_least / least,
        "bound_ms": bound * 1e3, "difference": difference,
    }  # fmt: skip


def _operations(prototxt: Path, shape: tuple[int, ...]) -> float:
    """Multiplications and additions of the layers, each as Caffe defines it."""
    model = load(prototxt, prototxt.with_suffix(".caffemodel"), shapes={next(iter(load(prototxt).inputs)): shape})
    with FlopCounterMode(display=False) as counter:
        model.run({name: np.zeros(size, np.float32) for name, size in model.inputs.items()})
    return float(counter.get_total_flops())


def _peak() -> float:
    """Operations a second of a product of matrices, with the same threads."""
    one, two = torch.rand(1024, 1024), torch.rand(1024, 1024)
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        one @ two
        seconds.append(time.perf_counter() - start)
    return 2 * 1024**3 / min(seconds)


Reader = Callable[[], list[np.ndarray]]


def _readers(prototxt: Path, batch: int) -> tuple[Reader, Reader, tuple[int, ...], str]:
    weights = prototxt.with_suffix(".caffemodel")
    name, shape = next(iter(load(prototxt).inputs.items()))
    shape = (batch, *SIZES.get(prototxt.stem, shape)[1:])
    model = load(prototxt, weights, shapes={name: shape})
    image = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    module, given = model.module(), torch.from_numpy(image)
    net = cv2.dnn.readNetFromCaffe(str(prototxt), str(weights))
    outputs = list(model.outputs)

    def ours() -> list[np.ndarray]:
        with torch.inference_mode():
            return [each.numpy() for each in module(given)]

    def theirs() -> list[np.ndarray]:
        net.setInput(image)
        return list(net.forward(outputs))

    assert module.fast is not None
    return ours, theirs, shape, next(iter(module.fast.chosen.values()))


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of detections, which come in any order, those that are as likely are compared."""
    if ours.shape[-1] == 7 and ours.ndim == 4:
        rows = [each.reshape(-1, 7) for each in (ours, theirs)]
        ours, theirs = (each[np.lexsort(np.round(each, 3).T[::-1])] for each in rows)
    if ours.size != theirs.size:
        return float("nan")
    return float(np.abs(ours.reshape(-1) - theirs.reshape(-1)).max() / max(1.0, np.abs(theirs).max()))


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
