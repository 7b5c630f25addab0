"""Writes docs/reference/accuracy-splits.md from the newest rows of the scripts beside it.

python benchmarks/split/page.py [--write]
"""

import sys
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from pages import Row, newest_rows, write_page  # noqa: E402 - found beside this folder

INTRODUCTION = """# Accuracy: splits

Made by `python benchmarks/split/page.py` from the newest rows in `benchmarks/split/results`. *Gap* is how far a distribution may be
from the best one at most; 0 means that it is proven to be the best."""


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def signed(value: float) -> str:
    return f"{100 * value:+.1f} %"


def date(rows: list[Row]) -> str:
    return str(rows[0]["date"])[:10]


def throughput(rows: list[Row]) -> list[str]:
    titles = {
        "public": "The public networks, on their own equal devices",
        "scattered": "Subnetworks that need not hang together",
        "classes": "The same on 2 + 3 + 4 devices of speed and links 4 : 2 : 1",
        "profile": "A profile of 921 operations",
        "exported": "Exported models of more than 1,000 operations",
    }
    lines = ["## Throughput", "", f"`throughput.py`, {date(rows)}, Python {rows[0]['python']}, one core."]
    for part, title in titles.items():
        chosen = [row for row in rows if row["part"] == part]
        lines += ["", f"### {title}", "", "| network | gap | CPU seconds |", "| --- | --- | --- |"]
        for row in chosen:
            network = row["network"] + ("" if row.get("contiguous", True) else ", scattered")
            lines.append(f"| {network} | {percent(row['gap'])} | {row['cpu_seconds']:.1f} |")
    return lines


def latency(rows: list[Row]) -> list[str]:
    lines = ["## Latency of one sample", "", "`latency.py`.", "", "| network | nodes | value | gap | CPU seconds |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for row in rows:
        told = f"| {row['name']} | {row['nodes']} | {row['value']:.4f} | {percent(row['gap'])} | {row['cpu_seconds']:.1f} |"
        lines.append(told)
    return lines


def execution(rows: list[Row]) -> list[str]:
    errors = sorted(abs(row["error"]) for row in rows)
    equal = sum(row["is_equal"] for row in rows)
    lines = [
        "## Predicted beside measured: the period of a pipeline", "",
        f"`execution.py`, {date(rows)}, torch {rows[0]['torch']}: hosts are network namespaces with links of limited rate on a machine "
        f"of {rows[0]['cores']} cores. A host that is n times slower takes n times the least processor time of its part: what is "
        "tested is whether parts cost the sum of their operations, and how links and pipelines behave, not how processes disturb "
        "each other.",
        "",
        f"{len(rows)} cases: median {percent(median(errors))}, 95 % within {percent(quantiles(errors, n=20, method='inclusive')[-1])}; "
        f"outputs of {equal} are bit-equal to those of the network in one piece.",
        "",
        "| model | hosts | split | limited by | predicted ms | measured ms | error |", "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in rows:
        lines.append(
            f"| {row['model']} | {row['cluster']} | {row['split']} | {row['bottleneck']} | {1e3 * row['predicted_seconds']:.1f} | "
            f"{1e3 * row['measured_seconds']:.1f} | {signed(row['error'])} |"
        )
    return lines


def adapting(rows: list[Row]) -> list[str]:
    within = sum(abs(row["error"]) <= 0.1 for row in rows)
    slowest = max(row["replan_seconds"] for row in rows)
    lines = [
        "## When a host or a link becomes slow", "",
        f"`adapting.py`, {date(rows)}: a host becomes three times slower, or a link loses half its rate, while a distribution runs. "
        f"The new plan took {slowest:.2f} s at most; {within} of {len(rows)} new distributions run within 10 % of their prediction. "
        "*Possible* is the best period for whom the disturbance is no surprise.",
        "",
        "| model | hosts | what | before ms | disturbed ms | planned again in | predicted ms | measured ms | error | possible ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in rows:
        before, disturbed, after = (f"{1e3 * row[when][1]:.0f}" for when in ("before", "disturbed", "after"))
        lines.append(
            f"| {row['model']} | {row['cluster']} | {row['disturbance']} {row['victim']} | {before} | {disturbed} | "
            f"{row['replan_seconds']:.2f} s | {1e3 * row['after'][0]:.0f} | {after} | {signed(row['error'])} | "
            f"{1e3 * row['possible_seconds']:.0f} |"
        )
    return lines


def gpu_stages(rows: list[Row]) -> list[str]:
    stages = [row for row in rows if "stage" in row]
    wholes = [row for row in rows if "stages" in row]
    errors = [abs(row["error"]) for row in stages]
    equal = sum(row["is_equal"] for row in wholes)
    lines = [
        "## Stages on a GPU", "",
        f"`gpu_stages.py`, {date(rows)}, one {rows[0]['gpu']}, torch {rows[0]['torch']}: {len(stages)} stages of {len(wholes)} networks, "
        f"median error {percent(median(errors))}, worst {percent(max(errors))}; {equal} of {len(wholes)} bit-equal.",
        "",
        "| model | batch | stage | predicted ms | measured ms | error |", "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for row in stages:
        lines.append(
            f"| {row['model']} | {row['batch']} | {row['stage']} | {1e3 * row['predicted_seconds']:.2f} | "
            f"{1e3 * row['measured_seconds']:.2f} | {signed(row['error'])} |"
        )
    return lines


def render() -> str:
    parts = [throughput, latency, execution, adapting, gpu_stages]
    lines = [INTRODUCTION]
    for part in parts:
        lines += ["", *part(newest_rows(HERE, part.__name__))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_page(__doc__, "accuracy-splits.md", render)
