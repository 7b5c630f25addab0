"""Writes docs/reference/serving-benchmarks.md from the newest rows of the scripts beside it.

python benchmarks/serving/page.py [--write]
"""

import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from pages import Row, newest_rows, write_page  # noqa: E402 - found beside this folder

INTRODUCTION = """# Benchmarks: the inference server

Made by `python benchmarks/serving/page.py --write` from the newest rows in `benchmarks/serving/results`."""


def throughput(rows: list[Row]) -> list[str]:
    one = rows[0]
    lines = [
        "## Beside Triton and MLServer", "",
        f"`throughput.py`, {one['date'][:10]}, {one['processor']}, {one['cores']} cores with the clients on them, onnxruntime "
        f"{one['onnxruntime']}. The same ONNX files, one instance of one thread in each server, five runs of {one['seconds']:g} s in turns; "
        "medians. *Ours* is how many times as many requests Tonnage answered in the same turn.",
        "",
        "| model | clients | tensors | server | requests a second | median | p99 | ours |", "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for key in dict.fromkeys(map(row_key, rows)):
        chosen = [row for row in rows if row_key(row) == key]
        ours = {row["repeat"]: row["requests_second"] for row in rows if row_key(row) == (*key[:2], "tonnage")}
        ratio = median(ours[row["repeat"]] / row["requests_second"] for row in chosen)
        figures = [median(row[name] for row in chosen) for name in ("requests_second", "p50_ms", "p99_ms")]
        lines.append(
            f"| {key[0]} | {chosen[0]['clients']} | {key[1]} | {key[2]} | {figures[0]:,.0f} | {figures[1]:.2f} ms | "
            f"{figures[2]:.2f} ms | {'' if key[2] == 'tonnage' else f'{ratio:.2f} x'} |"
        )
    return lines


def row_key(row: Row) -> tuple[str, str, str]:
    return row["model"], row["kind"], row["server"]


def differential(rows: list[Row]) -> list[str]:
    reasons: dict[str, int] = {}
    for row in rows:
        for reason, count in row["on_purpose"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    total, same, other = (sum(row[key] for row in rows) for key in ("requests", "same", "different"))
    lines = [
        "## The same answers as Triton", "",
        f"`differential.py`, {rows[0]['date'][:10]}: {total:,} random requests, valid and invalid, over REST and gRPC, to a real Triton "
        f"({rows[0]['triton'].replace('_', '-')}) and to Tonnage. {same:,} answers are the same in status, names, shapes, datatypes and bytes; "
        f"{other} differ without a reason, and {total - same - other} for these:",
        "",
        "| reason | requests |", "| --- | --- |",
    ]  # fmt: skip
    return lines + [f"| {reason} | {count} |" for reason, count in sorted(reasons.items(), key=lambda each: -each[1])]


def robustness(rows: list[Row]) -> list[str]:
    """The last row of each part."""
    newest = {row["part"]: row for row in rows}
    lines = ["## When things go wrong", "", "`robustness.py`; clients count every request by its id.", ""]
    for part, row in newest.items():
        told = ", ".join(
            f"{key} {_shown(value)}" for key, value in row.items() if key not in _LEFT_OUT and value not in ([], {})
        )
        lines.append(f"- **{part}** ({row['date']}): {told}")
    return lines


_LEFT_OUT = ("part", "date", "machine", "passed", "problems", "odd")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {each:,}" for key, each in value.items()) + ")"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def caffe_cpu(rows: list[Row]) -> list[str]:
    one = rows[0]
    lines = [
        "## Caffe on a processor, beside OpenCV", "",
        f"`caffe_cpu.py --zoo`, {one['date'][:10]}, {one['processor']}, torch {one['torch']}, OpenCV {one['opencv']}; medians of runs in turns, "
        "random weights except for `squeezenet` and `det1`. *Bound* is the time of all multiplications and additions at the speed of a product of "
        "large matrices, measured in the same run; only Winograd's method can be below it.",
        "",
        "| network | threads | ours | OpenCV | bound | times as fast | way |", "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in rows:
        bound = f"{row['bound_ms']:.2f} ms" if "bound_ms" in row else ""
        lines.append(
            f"| {row['model']} | {row['threads']} | {row['ours_ms']:.2f} ms | {row['opencv_ms']:.2f} ms | {bound} | "
            f"{row['ratio']:.2f} | {row['way']} |"
        )
    return lines


def caffe_cuda(rows: list[Row]) -> list[str]:
    one = rows[0]
    right = [row for row in rows if row["kind"] == "right"]
    worst = max(row.get("difference", 0.0) for row in right)
    lines = [
        "## Caffe on a GPU", "",
        f"`caffe_cuda.py`, {one['date'][:10]}, {one['device']}, torch {one['torch']}. {sum(row['is_right'] for row in right)} of {len(right)} "
        f"layers and networks give what the processor gives within 1e-4; the largest difference is {worst:.0e}.",
        "",
        "| network | instances | batch | rows a second | median | p99 | times 1 x 1 | |", "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in (row for row in rows if row["kind"] == "tuned"):
        lines.append(
            f"| {row['model']} | {row['instances']} | {row['batch']} | {row['rows_second']:,.0f} | {1e3 * row['median_seconds']:.2f} ms | "
            f"{1e3 * row['p99_seconds']:.2f} ms | {row['of_one']:.2f} | {'chosen' if row['is_best'] else ''} |"
        )
    return lines


def render() -> str:
    lines = [INTRODUCTION]
    for part in (throughput, differential, robustness, caffe_cpu, caffe_cuda):
        lines += ["", *part(newest_rows(HERE, part.__name__.replace("_", "-")))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_page(__doc__, "serving-benchmarks.md", render)
