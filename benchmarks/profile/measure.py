"""Compares the indicators of `tonnage profile` with CUDA events placed by hand, and what profiling costs outside its window.

    python benchmarks/profile/measure.py --out DIR [--device cpu] [--only REGEX] [--traces]

Each program runs alone, under `tonnage profile --keep-running` and alone once more, in turns (rig.py). The comparisons:

- step, and the spans of forward, backward and optimizer: events by hand around the very steps that were profiled;
- forward, backward, optimizer: what the GPU works for each, which the indicators take from the profiler's trace, beside
  events by hand in the program that runs alone, with the stream held back so that the host keeps no kernel waiting;
- copies to the GPU: `h2d_busy_seconds` beside events by hand around each tensor that is moved, with the stream held back as well;
- steps before and behind the window, beside those of the program that runs alone; what its two runs differ by is noise.

Writes DIR/profile.jsonl: a row about the machine, then one a program, flushed as they come.
"""

import argparse
import datetime
import json
import platform
import re
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from programs import ON_CPU, ON_GPU
from rig import Played, Rig, Row, Turn

from tonnage.errors import TonnageError
from tonnage.profile.report import ProfileReport

PHASES = ("forward", "backward", "optimizer")
SPANS = ("step", *PHASES)


def spans_by_hand(rows: list[Row]) -> Row:
    return {name: fmean(row[f"{name}_seconds"] for row in rows) for name in SPANS}


def spans_by_profile(report: ProfileReport) -> Row:
    """Spans on the device's time-line, idle moments inside them included, as events see them."""
    rows = report.clocked[:-1]
    return {
        "step": fmean(row.step_seconds for row in rows),
        "forward": fmean(row.forward_span_seconds for row in rows),
        "backward": fmean(row.backward_span_seconds for row in rows),
        "optimizer": fmean(row.optimizer_span_seconds for row in rows),
    }


def work_by_hand(rows: list[Row]) -> Row:
    """What is neither backward nor optimizer counts as forward."""
    found = {phase: fmean(row[f"{phase}_seconds"] for row in rows) for phase in PHASES}
    return found | {"forward": found["forward"] + fmean(row["between_seconds"] for row in rows)}


def errors(said: Row, truth: Row, least: float = 1e-6) -> dict[str, float | None]:
    return {name: said[name] / truth[name] - 1 if truth[name] > least else None for name in truth}


def copies_by_hand(rows: list[Row]) -> Row:
    return {"h2d": fmean(row["h2d_seconds"] for row in rows)}


def slower(turns: list[Turn]) -> Row:
    """Under the profiler beside alone, and alone beside alone: medians of neighbours."""
    middle = [[median(row["step_seconds"] for row in block) for block in turn] for turn in turns]
    return {
        "profiled": median(2 * profiled / (alone + again) for alone, profiled, again in middle) - 1,
        "noise": median(again / alone for alone, _, again in middle) - 1,
    }


def compare(name: str, played: Played) -> dict[str, Any]:
    report = played.report
    spans, work = spans_by_hand(played.window), work_by_hand(played.held)
    said = {phase: getattr(report.indicators, f"{phase}_seconds") for phase in PHASES}
    copies = copies_by_hand(played.held)
    return {
        "name": name,
        "spans_by_hand": spans, "span_errors": errors(spans_by_profile(report), spans),
        "work_by_hand": work, "work_errors": errors(said, work),
        # Below that, events measure themselves.
        "copies_by_hand": copies, "copy_errors": errors({"h2d": report.indicators.h2d_busy_seconds or 0.0}, copies, 5e-5),
        "outside": {"before": slower(played.before), "after": slower(played.after)},
        # Which program it is says `name`; places on the machine are nobody's business.
        "indicators": report.indicators.as_dict() | {"program": name}, "machine": report.as_dict()["machine"], "notes": list(report.notes),
        "steps": {
            "clocked": len(report.clocked), "traced": len(report.traced), "held": len(played.held),
            "before": sum(len(turn[1]) for turn in played.before), "after": sum(len(turn[1]) for turn in played.after),
        },
        "blocks": {
            when: [[[round(row["step_seconds"] * 1e6) for row in block] for block in turn] for turn in turns]
            for when, turns in (("before", played.before), ("after", played.after))
        },
    }  # fmt: skip


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    path, text = (ON_CPU if options.device == "cpu" else ON_GPU)[name]
    trace = options.out / f"{name}.trace.json.gz" if options.traces else None
    try:
        with Rig(path, text.split(), options.limit, trace) as rig:
            return compare(name, rig.play())
    except (TonnageError, RuntimeError, TimeoutError, OSError) as error:
        return {"name": name, "error": str(error)}


def percent(value: float | None) -> str:
    return "      -" if value is None else f"{value:+7.1%}"


HEADING = (
    f"{'program':20} {'a step':>12}  {'work by the GPU':>23}  {'copies':>7}  {'spans of the same steps':>31}  {'outside (noise)':>31}\n"
    + (
        f"{'':33}  "
        + "  ".join(
            " ".join(f"{word:>7}" for word in words)
            for words in (
                ("forward", "backw.", "optim."),
                ("h2d",),
                ("step", "forward", "backw.", "optim."),
                ("before", "(noise)", "after", "(noise)"),
            )
        )
        + "  busy"
    )
)


def show(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['name']:20} {row['error'][:300]}"
    busy = row["indicators"]["gpu_utilisation"]
    outside = {(when, what): cost for when, side in row["outside"].items() for what, cost in side.items()}
    groups = (row["work_errors"], row["copy_errors"], row["span_errors"], outside)
    return (
        f"{row['name']:20} {row['spans_by_hand']['step'] * 1e3:9.2f} ms  "
        + "  ".join(" ".join(percent(value) for value in group.values()) for group in groups)
        + f"  {'-' if busy is None else format(busy, '.0%'):>4}"
    )


def summary(rows: list[dict[str, Any]]) -> str:
    done = [row for row in rows if "error" not in row]
    lines = [f"{len(done)} programs"]
    for kind, names in (("work", PHASES), ("copy", ("h2d",)), ("span", SPANS)):
        for name in names:
            off = [abs(row[f"{kind}_errors"][name]) for row in done if row[f"{kind}_errors"][name] is not None]
            if off:
                within = sum(value <= 0.05 for value in off)
                lines.append(
                    f"{kind} {name}: median {median(off):.1%}, worst {max(off):.1%}, within 5 %: {within} of {len(off)}"
                )
    for when in ("before", "after"):
        for what in ("profiled", "noise"):
            costs = [row["outside"][when][what] for row in done]
            if costs:
                lines.append(f"{what} {when} the window: median {median(costs):+.1%}, worst {max(costs, key=abs):+.1%}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return {
        "gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="programs whose name matches")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for anything that is waited for")
    parser.add_argument("--traces", action="store_true", help="keep what the profiler wrote")
    parser.add_argument(
        "--budget", type=float, default=480.0, help="seconds for everything; programs that are left are not run"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    names = [name for name in (ON_CPU if options.device == "cpu" else ON_GPU) if re.search(options.only, name)]
    rows = []
    with (options.out / "profile.jsonl").open("w") as file:
        file.write(json.dumps(machine()) + "\n")
        print(HEADING)
        for name in names:
            late = time.monotonic() - began > options.budget
            row = {"name": name, "error": "no time was left for it"} if late else measure(name, options)
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(show(row), flush=True)
    print(summary(rows))


if __name__ == "__main__":
    main()
