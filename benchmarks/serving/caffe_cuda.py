"""Caffe models on a GPU: are they right, and how fast are they?

    python caffe_cuda.py [FOLDER ...] [--device cuda] [--only NAME ...] [--tune NAME ...] [--seconds 3] --rows ROWS.jsonl

Three kinds of rows, written as they come: `tuned`, what `tonnage serve tune` measures for networks with 1, 2, 4 and 8
instances and batches; `right`, every type of layer and every network of zoo.py on the device beside the same on the
processor; `module`, the time of a single module at batch 1, 2, 4 and 8. A FOLDER adds pairs NAME.prototxt and
NAME.caffemodel. `--device cpu` tries the script itself.
"""

import argparse
import asyncio
import json
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import layer_cases
import numpy as np
import torch
import zoo

from tonnage.errors import TonnageError
from tonnage.program.caffe import Model, load
from tonnage.serve.configuration_file import read_configuration
from tonnage.serve.repository import Repository
from tonnage.serve.tuning import Tuned, tune
from tonnage.serve.tuning_bench import ModelBench

TOLERANCE = 1e-4
SMALL = ("squeezenet_v1.1", "squeezenet", "mobilenet_v1", "mobilenet_v2", "googlenet")  # are tuned
COUNTS = (1, 2, 4, 8)
_RUNS = 50


def main() -> None:
    options = _options()
    common = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(0) if options.device.startswith("cuda") else "a processor",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    is_right = True
    with TemporaryDirectory() as name, options.rows.open("w") as file:
        for row in _rows(options, Path(name)):
            file.write(json.dumps(row | common) + "\n")
            file.flush()
            print("| " + " | ".join(f"{key} {_short(value)}" for key, value in row.items()) + " |", flush=True)
            is_right = is_right and row.get("is_right", True)
    sys.exit(not is_right)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", default=[], help="networks of the zoo; all")
    parser.add_argument("--tune", nargs="*", default=list(SMALL))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rows", type=Path, required=True)
    return parser.parse_args()


def _rows(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    files = dict(_files(options, folder))
    for name in options.tune:
        if name in files:
            yield from _tuned(name, files[name], folder, options)
    for name, path in files.items():
        yield _compared(name, _loaded(path), options.device)
        yield from _timed(name, path, options.device)
    for name, model in layer_cases.models(folder):
        yield _compared(name, model, options.device)


def _files(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path]]:
    for each in options.folders:
        yield from ((path.stem, path) for path in sorted(each.glob("*.prototxt")))
    for name in zoo.NETWORKS:
        if not options.only or name in options.only:
            yield name, zoo.write(folder, name)


def _loaded(path: Path, batch: int = 1) -> Model:
    return load(path, path.with_suffix(".caffemodel"), batch=batch)


def _compared(name: str, model: Model, device: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    inputs = {key: random.normal(0, 1, shape).astype(np.float32) for key, shape in model.inputs.items()}
    wanted = model.run(inputs)
    row: dict[str, Any] = {"kind": "right", "model": name}
    try:
        with torch.inference_mode():
            made = model.module(device)(*(torch.from_numpy(each).to(device) for each in inputs.values()))
    except (TonnageError, RuntimeError) as error:
        return row | {"is_right": False, "problem": " ".join(str(error).split())[:200]}
    difference = max(_difference(each.cpu().numpy(), wanted[key]) for key, each in zip(wanted, made, strict=True))
    return row | {"is_right": difference <= TOLERANCE, "difference": difference}


def _difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """As a part of the largest number, or of 1."""
    if found.shape != wanted.shape:
        return float("inf")
    return float(np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max())) if found.size else 0.0


def _timed(name: str, path: Path, device: str) -> Iterator[dict[str, Any]]:
    """Numbers come from the processor and go back to it, as those of clients do."""
    for batch in COUNTS:
        model = _loaded(path, batch)
        module = model.module(device)
        images = [torch.rand(shape) for shape in model.inputs.values()]
        seconds = []
        with torch.inference_mode():
            for _ in range(_RUNS):
                start = time.perf_counter()
                [each.cpu() for each in module(*(image.to(device) for image in images))]
                seconds.append(time.perf_counter() - start)
        usual = median(seconds)
        way = next(iter(module.fast.chosen.values())) if module.fast is not None else ""
        row = {"kind": "module", "model": name, "batch": batch, "median_seconds": usual}
        yield row | {"rows_second": batch / usual, "way": way}


def _tuned(name: str, path: Path, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    version = folder / "models" / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    for suffix in (".prototxt", ".caffemodel"):
        shutil.copy(path.with_suffix(suffix), version / f"model{suffix}")
    model = Repository(folder / "models").model(name)
    bench = ModelBench(folder=model, seconds=options.seconds, gpus=(0,) if options.device.startswith("cuda") else ())
    said = partial(print, file=sys.stderr, flush=True)
    found: Tuned = asyncio.run(tune(read_configuration(model), bench, instances=COUNTS, batches=COUNTS, progress=said))
    one = next(each.rows_second for each in found.trials if (each.instances, each.batch) == (1, 1))
    for each in found.trials:
        yield {
            "kind": "tuned", "model": name, "instances": each.instances, "batch": each.batch, "seconds": options.seconds,
            "rows_second": each.rows_second, "of_one": each.rows_second / one if one else 0.0,
            "median_seconds": each.median_seconds, "p99_seconds": each.p99_seconds, "problem": each.problem,
            "is_best": each == found.best,
        }  # fmt: skip


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
