"""Compares the indicators of `tonnage profile` with CUDA events placed by hand, and what profiling costs outside its window.

    python benchmarks/profile/measure.py --out DIR [--device cpu] [--only REGEX] [--seconds 6]

Each program runs twice, both times with events by hand (hand_clock.py): alone, and under `tonnage profile --keep-running`.
The first run is the truth for the indicators of the second; steps of the second behind the window tell what profiling
leaves behind. Writes DIR/profile.jsonl: a row about the machine, then one a program, flushed as they come.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from tonnage.errors import TonnageError
from tonnage.profile.job import WindowOptions
from tonnage.profile.profiling import ProfileOptions, profile_program
from tonnage.profile.report import ProfileReport
from tonnage.program.program import parse_program

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "accuracy" / "programs"
BLIND = HERE.parent / "accuracy" / "blind"
MANY = "100000"  # steps; the clock ends the program
# Training programs of different kinds: convolutions, attention, recurrence, tables; limited by the GPU and by the host.
ON_GPU: dict[str, tuple[Path, str]] = {
    "resnet50-b64": (PROGRAMS / "resnet.py", "--arch resnet50 --batch-size 64 --workers 2"),
    "gpt-small-b8-bf16": (PROGRAMS / "gpt.py", "--batch-size 8"),
    "vit-base-b32": (PROGRAMS / "vit.py", "--batch-size 32"),
    "unet-b8-512": (PROGRAMS / "unet.py", "--batch-size 8 --size 512"),
    "bert": (PROGRAMS / "bert_encoder.py", ""),
    "lstm": (PROGRAMS / "lstm_lm.py", ""),
    "dcgan": (PROGRAMS / "dcgan.py", ""),
    "dlrm": (PROGRAMS / "dlrm.py", ""),
    "convnext": (PROGRAMS / "convnext.py", ""),
    "densenet": (PROGRAMS / "densenet.py", ""),
    "deeplab-b8": (BLIND / "deeplab.py", ""),
    "edsr-b16": (BLIND / "edsr.py", ""),
}
ON_CPU: dict[str, tuple[Path, str]] = {
    "small": (HERE / "small_training.py", "--width 256"),
    "larger": (HERE / "small_training.py", "--width 512"),
}
WARM = 20
STEPS = 10
QUANTITIES = ("step", "forward", "backward", "optimizer")


def run_alone(
    name: str, path: Path, arguments: list[str], options: argparse.Namespace, scratch: Path
) -> list[dict[str, float]]:
    out = scratch / "alone.json"
    command = [sys.executable, str(HERE / "hand_clock.py"), str(out), str(options.seconds), str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=False)
    if not out.exists():
        raise RuntimeError(f"{name} failed by itself: {done.stderr[-1500:]}")
    return list(json.loads(out.read_text()))


def run_profiled(
    path: Path, arguments: list[str], options: argparse.Namespace, scratch: Path
) -> tuple[ProfileReport, list[dict[str, float]]]:
    out = scratch / "profiled.json"
    # The window and the writing of the trace take a few seconds of their own.
    inside = [str(out), str(options.seconds + 6), str(path), *arguments]
    program = parse_program(str(HERE / "hand_clock.py"), tuple(inside))
    window = WindowOptions(warmup=WARM, steps=STEPS)
    report = profile_program(program, ProfileOptions(window=window, keep_running=True, timeout_seconds=options.limit))
    return report, list(json.loads(out.read_text()))


def by_hand(rows: list[dict[str, float]]) -> dict[str, float]:
    """Means of a step and its spans; forward is what is left."""
    steady = rows[WARM:] or rows
    found = {name: fmean(row[f"{name}_seconds"] for row in steady) for name in ("step", "backward", "optimizer")}
    return found | {"forward": found["step"] - found["backward"] - found["optimizer"]}


def by_profile(report: ProfileReport) -> dict[str, float]:
    """Spans on the device's time-line, idle moments inside them included, as events see them."""
    rows = report.clocked
    return {
        "step": report.indicators.step_seconds,
        "forward": fmean(row.forward_span_seconds for row in rows),
        "backward": fmean(row.backward_span_seconds for row in rows),
        "optimizer": fmean(row.optimizer_span_seconds for row in rows),
    }


def busy_by_profile(report: ProfileReport) -> dict[str, float]:
    """What the trace alone says of kernels and copies."""
    found = report.indicators
    return {
        name: getattr(found, f"{name}_seconds")
        for name in ("forward", "backward", "optimizer", "h2d", "d2h", "idle", "data_wait")
    }


def compare(
    name: str, alone: list[dict[str, float]], report: ProfileReport, profiled: list[dict[str, float]]
) -> dict[str, Any]:
    truth, said = by_hand(alone), by_profile(report)
    usual = median(row["step_seconds"] for row in alone[WARM:])
    last = WARM + len(report.clocked) + STEPS + 5  # the row in which the trace was written is behind the window as well
    before, after = profiled[WARM // 2 : WARM - 2], profiled[last:]
    outside = {
        "before": median(row["step_seconds"] for row in before) / usual - 1 if before else None,
        "after": median(row["step_seconds"] for row in after) / usual - 1 if len(after) > 5 else None,
    }
    return {
        "name": name, "by_hand": truth, "by_profile": said, "busy": busy_by_profile(report),
        "errors": {q: said[q] / truth[q] - 1 if truth[q] > 1e-6 else None for q in QUANTITIES},
        "outside": outside, "indicators": report.indicators.as_dict(),
        "steps_alone": len(alone), "steps_after": len(after), "notes": list(report.notes),
    }  # fmt: skip


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    path, text = (ON_CPU if options.device == "cpu" else ON_GPU)[name]
    arguments = [*text.split(), "--steps", MANY]
    with tempfile.TemporaryDirectory() as folder:
        try:
            alone = run_alone(name, path, arguments, options, Path(folder))
            report, profiled = run_profiled(path, arguments, options, Path(folder))
            return compare(name, alone, report, profiled)
        except (TonnageError, RuntimeError, subprocess.TimeoutExpired, OSError) as error:
            return {"name": name, "error": str(error)}


def percent(value: float | None) -> str:
    return "      -" if value is None else f"{value:+7.1%}"


def show(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['name']:20} {row['error'][:300]}"
    found = row["indicators"]
    busy = found["gpu_utilisation"]
    return (
        f"{row['name']:20} {row['by_hand']['step'] * 1e3:9.2f} ms "
        + " ".join(percent(row["errors"][q]) for q in QUANTITIES)
        + f"   {percent(row['outside']['before'])} {percent(row['outside']['after'])}   {'-' if busy is None else format(busy, '.0%'):>4}"
    )


def machine() -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="programs whose name matches")
    parser.add_argument("--seconds", type=float, default=6.0, help="of steps by hand, in each run")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one run")
    parser.add_argument(
        "--budget", type=float, default=420.0, help="seconds for everything; programs that are left are not run"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    names = [name for name in (ON_CPU if options.device == "cpu" else ON_GPU) if re.search(options.only, name)]
    rows = []
    with (options.out / "profile.jsonl").open("w") as file:
        file.write(json.dumps(machine()) + "\n")
        print(
            f"{'program':20} {'step by hand':>12} "
            + " ".join(f"{q:>7}"[:9] for q in ("step", "fwd", "bwd", "optim"))
            + "    before   after   busy"
        )
        for name in names:
            if time.monotonic() - began > options.budget:
                print(f"{name:20} no time left")
                continue
            row = measure(name, options)
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(show(row), flush=True)
    done = [row for row in rows if "error" not in row]
    errors = [abs(row["errors"][q]) for row in done for q in QUANTITIES if row["errors"][q] is not None]
    outside = [o for row in done for o in row["outside"].values() if o is not None]
    if errors:
        print(
            f"{len(done)} programs; worst error {max(errors):.1%}, mean {fmean(errors):.1%}; worst overhead outside {max(outside, default=0):+.1%}"
        )


if __name__ == "__main__":
    main()
