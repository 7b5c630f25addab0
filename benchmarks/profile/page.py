"""Writes docs/reference/accuracy-profile.md from the rows of measure.py.

python benchmarks/profile/page.py benchmarks/profile/results/h200-DATE.jsonl [--write]
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "accuracy-profile.md"
PHASES = ("forward", "backward", "optimizer")
BAR, OVERHEAD_BAR = 0.05, 0.03
Row = dict[str, Any]


def percent(value: float | None) -> str:
    return "" if value is None else f"{value * 100:+.1f} %"


def spread(values: list[float]) -> str:
    return f"{percent(median(values))} ({percent(max(values, key=abs))})"


def off(row: Row) -> list[float]:
    """Step, forward, backward, optimizer. Events cannot tell copies that block the host; see the notes of the page."""
    every = (error for kind in ("work", "span") for error in row[f"{kind}_errors"].values())
    return [abs(error) for error in every if error is not None]


def within(row: Row) -> bool:
    return max(off(row)) <= BAR


def render(machine: Row, rows: list[Row]) -> str:
    first = rows[0]["machine"]
    good = [row["name"] for row in rows if within(row)]
    errors = {
        kind: [abs(e) for row in rows for e in row[f"{kind}_errors"].values() if e is not None]
        for kind in ("work", "copy", "span")
    }
    outside = {
        (when, what): [row["outside"][when][what] for row in rows]
        for when in ("before", "after")
        for what in ("profiled", "noise")
    }
    lines = [
        "# Accuracy: profile",
        "",
        f"Made by `python benchmarks/profile/page.py` from rows of `benchmarks/profile/measure.py`: one {machine['gpu']} (driver {first['driver']}, "
        f"torch {machine['torch']}, CUDA {machine['cuda']}, Python {machine['python']}) on {machine['date']}.",
        "",
        "Each program runs alone, under `tonnage profile` and alone once more, at the same time and in turns; CUDA events are placed by hand in all of them.",
        "",
        "| what | measured | bar |",
        "| --- | --- | --- |",
        f"| programs whose step, and work and span of forward, backward and optimizer, are all within 5 % of events by hand | {len(good)} of {len(rows)} | >= 8 |",
        f"| work of a phase, median error | {median(errors['work']) * 100:.1f} % | |",
        f"| copies to the GPU, median error | {median(errors['copy']) * 100:.1f} % | |",
        f"| span of a phase, median error | {median(errors['span']) * 100:.1f} % | |",
        *(
            f"| steps {when} the window beside those without a profiler, median of the programs (worst) | "
            f"{spread(outside[when, 'profiled'])} | <= 3 % |\n"
            f"| the same steps in two runs without a profiler: noise | {spread(outside[when, 'noise'])} | |"
            for when in ("before", "after")
        ),
        "",
        "## By program",
        "",
        "*Work* is `forward_seconds`, `backward_seconds` and `optimizer_seconds` beside events in the program that runs alone, whose stream is held back "
        "so that the host keeps no kernel waiting. *Copies* is `h2d_busy_seconds` beside events around each tensor that is moved, held back too, where they take 50 us and more. *Span* is `forward_span_seconds` and so on, beside events around the very same steps. *Outside* is how much "
        "slower steps are before and behind the window, in medians of neighbouring blocks, and in brackets by how much two runs without a profiler differ.",
        "",
        "| program | step | work: forward | backward | optimizer | copies | span: forward | backward | optimizer | outside: before | after | GPU busy |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [
            row["name"],
            f"{row['spans_by_hand']['step'] * 1e3:.1f} ms",
            *(percent(row["work_errors"][phase]) for phase in PHASES),
            percent(row["copy_errors"]["h2d"]),
            *(percent(row["span_errors"][phase]) for phase in PHASES),
            *(
                f"{percent(row['outside'][when]['profiled'])} ({percent(row['outside'][when]['noise'])})"
                for when in ("before", "after")
            ),
            f"{row['indicators']['gpu_utilisation'] * 100:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "## What differs", "", *NOTES, ""])


NOTES = [
    "- Recurrent networks (`lstm`): cuDNN runs kernels of several streams at once when they wait in the queue. Held back, the stream has them all at hand and "
    "overlaps more than it does in a run whose host is slower than the GPU, which is what the profile sees.",
    "- Copies from memory that is not pinned: the call returns when the copy has arrived, and only then the second event can be recorded. Events by hand "
    "contain that wait for the host, 50 to 150 microseconds a copy; `h2d_busy_seconds` is what the copy itself takes. So the column tells something only where "
    "copies are large.",
    "- The optimizer of a small network takes 70 microseconds: there, events themselves are part of what they measure.",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    machine, *rows = (json.loads(line) for line in options.rows.read_text().splitlines())
    done = [row for row in rows if "error" not in row]
    text = render(machine, done)
    for row in rows:
        if "error" in row:
            text += f"- `{row['name']}` was not compared: {row['error'].splitlines()[0][:200]}\n"
    if options.write:
        PAGE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
