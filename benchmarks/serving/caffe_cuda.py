"""Caffe models on a GPU: are they right, and how fast are they?

    python caffe_cuda.py [FOLDER ...] [--device cuda] [--only NAME ...] [--seconds 3] [--no-tune] [--output TABLE.md]

Three tables: every type of layer and every network of zoo.py on the device beside the same on the processor; the time of
a single module at batch 1, 2, 4 and 8; and what `tonnage serve tune` measures for small networks with 1, 2, 4 and 8
instances and batches. A FOLDER adds pairs NAME.prototxt and NAME.caffemodel. `--device cpu` tries the script itself.
"""

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

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
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = dict(_files(options, folder))
        lines = [f"# Caffe on {_device_name(options.device)}, torch {torch.__version__}", ""]
        layers = [_compared(name, model, options.device) for name, model in layer_cases.models(folder)]
        networks = [_compared(name, _loaded(path), options.device) for name, path in files.items()]
        lines += ["| on the device | largest difference | |", "|---|---|---|", *layers, *networks, ""]
        lines += ["| one module | batch | ms | rows a second | way |", "|---|---|---|---|---|"]
        lines += [line for name, path in files.items() for line in _timed(name, path, options.device)]
        if not options.no_tune:
            lines += [line for name in SMALL if name in files for line in _tuned(name, files[name], folder, options)]
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
    if any("WRONG" in line for line in lines):
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--no-tune", action="store_true")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def _files(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path]]:
    for each in options.folders:
        yield from ((path.stem, path) for path in sorted(each.glob("*.prototxt")))
    for name in zoo.NETWORKS:
        if not options.only or name in options.only:
            yield name, zoo.write(folder, name)


def _loaded(path: Path, batch: int = 1) -> Model:
    return load(path, path.with_suffix(".caffemodel"), batch=batch)


def _compared(name: str, model: Model, device: str) -> str:
    random = np.random.default_rng(0)
    inputs = {key: random.normal(0, 1, shape).astype(np.float32) for key, shape in model.inputs.items()}
    wanted = model.run(inputs)
    try:
        with torch.inference_mode():
            made = model.module(device)(*(torch.from_numpy(each).to(device) for each in inputs.values()))
    except (TonnageError, RuntimeError) as error:
        return f"| {name} | | WRONG: {' '.join(str(error).split())[:200]} |"
    difference = max(_difference(each.cpu().numpy(), wanted[key]) for key, each in zip(wanted, made, strict=True))
    return f"| {name} | {difference:.1e} | {'right' if difference <= TOLERANCE else 'WRONG'} |"


def _difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """As a part of the largest number, or of 1."""
    if found.shape != wanted.shape:
        return float("inf")
    return float(np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max())) if found.size else 0.0


def _timed(name: str, path: Path, device: str) -> Iterator[str]:
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
        best = median(seconds)
        way = next(iter(module.fast.chosen.values())) if module.fast is not None else ""
        yield f"| {name} | {batch} | {best * 1e3:.3f} | {batch / best:.0f} | {way} |"


def _tuned(name: str, path: Path, folder: Path, options: argparse.Namespace) -> list[str]:
    version = folder / "models" / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    for suffix in (".prototxt", ".caffemodel"):
        shutil.copy(path.with_suffix(suffix), version / f"model{suffix}")
    model = Repository(folder / "models").model(name)
    bench = ModelBench(folder=model, seconds=options.seconds, gpus=(0,) if options.device.startswith("cuda") else ())
    said = partial(print, file=sys.stderr, flush=True)
    found: Tuned = asyncio.run(tune(read_configuration(model), bench, instances=COUNTS, batches=COUNTS, progress=said))
    one = next(each for each in found.trials if (each.instances, each.batch) == (1, 1))
    lines = [
        "",
        f"| {name}: instances | batch | rows a second | median, ms | p99, ms | of 1 x 1 |",
        "|---|---|---|---|---|---|",
    ]
    for each in found.trials:
        figures = f"{each.rows_second:.0f} | {each.median_seconds * 1e3:.2f} | {each.p99_seconds * 1e3:.2f}"
        ratio = f"{each.rows_second / one.rows_second:.2f}" if one.rows_second else ""
        lines.append(f"| {each.instances} | {each.batch} | {each.problem or figures + ' | ' + ratio} |")
    return lines


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(0) if device.startswith("cuda") else "a processor"


if __name__ == "__main__":
    main()
