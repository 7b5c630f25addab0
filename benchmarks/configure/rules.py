"""How far the rules' choice is from the exhaustive minimum, with estimates as the truth.

    python benchmarks/configure/rules.py [--traces FOLDER] [--held-out] [--write]

Each of eight programs is profiled on each of eight node types that can hold it, then placed in three inventories, with up
to one and up to eight GPUs. `rules` is the choice of the rules alone, before it is compared with the minimum; `answer` is
what the server would say. Both are judged by the estimate of the program on each GPU, which the rules get to see
(`estimates sent`) or not (`indicators only`, where the catalogue's rates stand in for it). Copies, loading and communication
are those of the prediction in all of them. `--held-out` takes programs and node types that the rules were not tried on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from programs import HELD_OUT, SAMPLES, Sample, report_of, with_truth, work_of

from tonnage.configure.choose import TOLERANCE, choose
from tonnage.configure.compute import phases_on
from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.inventory import candidates
from tonnage.configure.predict import Predictor, Sizing
from tonnage.configure.rules import Rules
from tonnage.configure.work import Work
from tonnage.errors import DoesNotFit
from tonnage.estimate.estimate import Report
from tonnage.hardware import Cluster, read_cluster
from tonnage.service.files import read_rules

HERE = Path(__file__).parent
INVENTORIES = {
    "all": (),
    "no best": ("hopper", "blackwell"),
    "cards": ("hopper", "ampere", "volta", "grace", "blackwell", "hgx"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    mode: str
    program: str
    source: str
    inventory: str
    most_gpus: int
    rules_choice: str
    rules_seconds: float
    answer_seconds: float
    minimum: str
    minimum_seconds: float

    @property
    def rules_off(self) -> float:
        return self.rules_seconds / self.minimum_seconds - 1

    @property
    def answer_off(self) -> float:
        return self.answer_seconds / self.minimum_seconds - 1


def truth_seconds(truth: Work, cluster: Cluster, chosen: HardwareConfiguration) -> float:
    """What a configuration takes by the estimates."""
    for candidate in candidates(cluster, truth.most_gpus):
        gpu = candidate.gpu.name if candidate.gpu else ""
        found = (candidate.node_type, gpu, candidate.gpu_count, candidate.communication)
        if found == (chosen.node_type, chosen.gpu, chosen.gpu_count, chosen.communication):
            sizing = Sizing(
                cpu_cores=chosen.cpu_cores, sockets=chosen.sockets, memory_bytes=chosen.memory_bytes,
                loader_workers=chosen.loader_workers, pinned_memory=chosen.pinned_memory,
            )  # fmt: skip
            return Predictor(truth, candidate).predict(sizing).run_seconds.value
    raise AssertionError(chosen)


def rows(sample: Sample, report: Report, cluster: Cluster, rules: Rules) -> Iterator[Row]:
    fitting = {e.gpu for e in report.estimates if e.fits}
    sources = [node for node in cluster.nodes if node.gpus[0].name in fitting]
    for source in sources:
        for inventory, missing in INVENTORIES.items():
            part = replace(cluster, nodes=tuple(node for node in cluster.nodes if node.group not in missing))
            for most_gpus in (1, 8):
                seen = work_of(sample, report, source.gpus[0].name, most_gpus)
                truth = with_truth(seen, report)
                best = choose(truth, part, rules)
                for mode, work in (("estimates sent", truth), ("indicators only", seen)):
                    try:
                        answer = choose(work, part, rules)
                    except DoesNotFit:
                        continue
                    yield Row(
                        mode=mode, program=sample.name, source=source.group, inventory=inventory, most_gpus=most_gpus,
                        rules_choice=answer.rules_configuration.name,
                        rules_seconds=truth_seconds(truth, part, answer.rules_configuration),
                        answer_seconds=truth_seconds(truth, part, answer.configuration),
                        minimum=best.minimum_configuration.name, minimum_seconds=best.minimum_run_seconds,
                    )  # fmt: skip


def ratio_errors(samples: tuple[Sample, ...], reports: dict[str, Report], cluster: Cluster) -> list[float]:
    """How far ratios of catalogue rates are from estimates, as factors, over all pairs of GPUs."""
    gpus = [node.gpus[0] for node in cluster.nodes]
    factors = []
    for sample in samples:
        report = reports[sample.name]
        known = with_truth(work_of(sample, report, gpus[0].name, 1), report).known
        for source in gpus:
            work = work_of(sample, report, source.name, 1)
            for target in gpus:
                found = phases_on(work, target)
                if found is not None and source != target:
                    factor = (found.seconds + work.indicators.idle_seconds) / known[target.name].compute_seconds
                    factors.append(max(factor, 1 / factor))
    return sorted(factors)


def print_table(found: list[Row]) -> None:
    print(
        f"{'program':10} {'seen on':8} {'inventory':10} {'GPUs':>4}  {'rules choose':38} {'s':>9}  {'minimum':38} {'s':>9} {'off':>7} {'answer':>7}"
    )
    for row in found:
        print(f"{row.program:10} {row.source:8} {row.inventory:10} {row.most_gpus:4}  {row.rules_choice:38} {row.rules_seconds:9.2f}  "
              f"{row.minimum:38} {row.minimum_seconds:9.2f} {row.rules_off * 100:6.1f}% {row.answer_off * 100:6.1f}%")  # fmt: skip


def summary(found: list[Row]) -> dict[str, float]:
    rules_off, answer_off = [row.rules_off for row in found], [row.answer_off for row in found]
    within = sum(off <= TOLERANCE for off in rules_off)
    return {
        "cases": len(found),
        "rules_within_5_percent": within,
        "rules_mean_off": statistics.mean(rules_off),
        "rules_worst_off": max(rules_off),
        "answer_within_5_percent": sum(off <= TOLERANCE + 1e-9 for off in answer_off),
        "answer_worst_off": max(answer_off),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="keep captured traces here")
    parser.add_argument("--held-out", action="store_true", help="other programs and other node types")
    parser.add_argument("--write", action="store_true", help="write results/rules.json or results/rules-held-out.json")
    options = parser.parse_args()
    folder = options.traces or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    samples = HELD_OUT if options.held_out else SAMPLES
    suffix = "-held-out" if options.held_out else ""
    cluster, rules = read_cluster(HERE / f"cluster{suffix}.yaml"), read_rules()
    gpus = [node.gpus[0] for node in cluster.nodes]
    reports = {sample.name: report_of(sample, gpus, folder) for sample in samples}
    started = time.perf_counter()
    found = [row for sample in samples for row in rows(sample, reports[sample.name], cluster, rules)]
    seconds = (time.perf_counter() - started) / len(found)
    results: dict[str, object] = {"rules_version": rules.version, "node_types": len(gpus), "programs": len(samples)}
    for mode in ("estimates sent", "indicators only"):
        own = [row for row in found if row.mode == mode]
        print(f"\n{mode}")
        print_table(own)
        results[mode] = summary(own)
        print(json.dumps(results[mode]))
    factors = ratio_errors(samples, reports, cluster)
    results["ratio_factor_90"] = factors[round(0.9 * (len(factors) - 1))]
    results["ratio_factor_median"] = statistics.median(factors)
    print(f"\nratios of rates: within a factor of {results['ratio_factor_90']:.2f} for nine of ten pairs of GPUs "
          f"(median {results['ratio_factor_median']:.2f}); {seconds * 1e3:.0f} ms a case")  # fmt: skip
    if options.write:
        (HERE / "results" / f"rules{suffix}.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
