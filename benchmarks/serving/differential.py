"""Do we answer as a real Triton server does? Sends the same random requests, valid and invalid, to both and compares
status, shapes, datatypes and bytes.

    python differential.py --triton FOLDER [--requests 3000] [--seed 0] [--output results/rows.jsonl] [--show 3]

FOLDER is an environment with Triton and its Python backend, made once, with the Python that runs this script:

    python -m venv FOLDER && FOLDER/bin/pip install nvidia-pytriton==0.7.0

TONNAGE_TRITON may name it as well. Both servers get the same models: ours as ONNX, Triton's as Python with the same
arithmetic. Where we differ on purpose, `DIFFERENCES` says so, with the reason; those are counted apart. The exit code is 1
where something else differs.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import differential_grpc as by_grpc
import differential_rest as by_rest
from differential_answers import GONE, Answer, Peer
from differential_differences import expected
from differential_grpc import GrpcRequest
from differential_models import make_repositories
from differential_rest import RestRequest
from differential_routes import region_request, repository_request, route_request, wrong_route_request
from differential_servers import site_packages, tonnage_server, triton_server

Case = RestRequest | GrpcRequest
# What is drawn, and how often.
_MAKERS: tuple[tuple[Callable[[random.Random], Case], int], ...] = (
    (by_rest.json_request, 12), (by_rest.binary_request, 12), (by_rest.compressed_request, 5),
    (by_rest.classes_request, 4), (by_rest.wrong_request, 30), (route_request, 6), (wrong_route_request, 5),
    (repository_request, 2), (region_request, 3), (by_grpc.raw_request, 10), (by_grpc.typed_request, 8),
    (by_grpc.classes_request, 3), (by_grpc.wrong_request, 20), (by_grpc.other_request, 8),
)  # fmt: skip


@dataclass(slots=True)
class Row:
    """One category of requests, and what came of them."""

    same: int = 0
    expected: Counter[str] = field(default_factory=Counter)  # by reason
    different: list[tuple[Case, Answer, Answer]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)  # Triton's

    @property
    def count(self) -> int:
        return self.same + self.expected.total() + len(self.different)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triton", type=Path, default=os.environ.get("TONNAGE_TRITON"))
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", type=int, default=3, help="differences of each category that are shown")
    options = parser.parse_args()
    if options.triton is None:
        parser.error("--triton or TONNAGE_TRITON must name the folder with Triton")
    with tempfile.TemporaryDirectory() as folder:
        rows = differences(Path(options.triton), Path(folder), options.requests, options.seed)
    print_table(rows, options.show)
    if options.output:
        write_rows(rows, options)
    sys.exit(any(row.different for row in rows.values()))


def differences(triton: Path, folder: Path, requests: int, seed: int) -> dict[str, Row]:
    """By category. `folder` is empty, and for repositories and logs. Some requests end Triton: then it is started again."""
    ours, theirs = folder / "ours", folder / "theirs"
    make_repositories(ours, theirs)
    rows: dict[str, Row] = defaultdict(Row)
    left = cases(requests, seed)
    with tonnage_server(ours) as our_addresses, closing(Peer(*our_addresses)) as one:
        is_over = False
        while not is_over:
            with triton_server(triton, theirs) as their_addresses, closing(Peer(*their_addresses)) as two:
                is_over = compare(one, two, left, rows)
    return dict(sorted(rows.items()))


def cases(count: int, seed: int) -> Iterator[Case]:
    rng = random.Random(seed)
    makers, weights = zip(*_MAKERS, strict=True)
    for maker in rng.choices(makers, weights, k=count):
        yield maker(rng)


def compare(ours: Peer, theirs: Peer, cases: Iterator[Case], rows: dict[str, Row]) -> bool:
    """Counts into `rows`; false where Triton is gone before all cases are."""
    for case in cases:
        row, our_answer, their_answer = rows[case.category], ours.ask(case), theirs.ask(case)
        row.statuses[their_answer.status] += 1
        if our_answer.agrees(their_answer):
            row.same += 1
        elif their_answer.status in GONE and not theirs.is_there():
            row.expected["Triton ends or hangs with this request; here it is answered"] += 1
            print(f"Triton is gone after {told(case)}\n  ours: {our_answer}", flush=True)
            return False
        elif reason := expected(case, our_answer, their_answer):
            row.expected[reason] += 1
        else:
            row.different.append((case, our_answer, their_answer))
    return True


def print_table(rows: dict[str, Row], show: int) -> None:
    print(f"{'category':52} {'requests':>8} {'same':>6} {'on purpose':>10} {'different':>9}  Triton's statuses")
    for name, row in rows.items():
        statuses = ", ".join(f"{status} {count}" for status, count in row.statuses.most_common())
        numbers = f"{row.count:8} {row.same:6} {row.expected.total():10} {len(row.different):9}"
        print(f"{name:52} {numbers}  {statuses}")
    counts = [(each.count, each.same, each.expected.total(), len(each.different)) for each in rows.values()]
    total = [sum(column) for column in zip(*counts, strict=True)]
    print("{:52} {:8} {:6} {:10} {:9}".format("all", *total))
    reasons: Counter[str] = sum((row.expected for row in rows.values()), Counter())
    for reason, count in reasons.most_common():
        print(f"on purpose, {count}: {reason}")
    for name, row in rows.items():
        for case, ours, theirs in row.different[:show]:
            print(f"\n{name}: {told(case)}\n  ours:   {ours}\n  Triton: {theirs}")


def told(case: Case) -> str:
    if isinstance(case, GrpcRequest):
        return f"{case.method}{' in a stream' if case.is_streamed else ''} {str(case.message)[:600]!r}"
    headers, body = case.written()
    return f"{case.method} {case.path} {headers} {body[:600]!r}"


def write_rows(rows: dict[str, Row], options: Any) -> None:
    package = next(site_packages(Path(options.triton)).glob("nvidia_pytriton-*.dist-info")).stem
    common = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "seed": options.seed, "triton": package}
    options.output.parent.mkdir(exist_ok=True)
    with options.output.open("w") as file:
        for name, row in rows.items():
            counts = {"requests": row.count, "same": row.same, "different": len(row.different)}
            more = {"on_purpose": dict(row.expected), "triton_statuses": dict(row.statuses)}
            file.write(json.dumps({"category": name, **counts, **more, **common}) + "\n")


if __name__ == "__main__":
    main()
