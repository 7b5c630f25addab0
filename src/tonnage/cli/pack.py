"""`tonnage pack`: how much of a cluster's GPUs a policy fills with pods that share them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tonnage.allocate.packing.pods import Node, Pod
    from tonnage.allocate.packing.simulate import Packing

_HEADINGS = "allocated, lowest, highest, dropped GPUs: no GPU, no CPU, no memory, never fits, time".split(", ")
_MOST_BYTES = 1 << 30  # of an unpacked file; a million pods need a tenth of it


def pack_command(
    nodes: Annotated[Path, typer.Option("--nodes", help="The nodes, a CSV file in the openb format; may be gzipped.")],
    pods: Annotated[Path, typer.Option("--pods", help="The pods, a CSV file in the openb format; may be gzipped.")],
    policy: Annotated[str, typer.Option(help="room, fgd, best-fit, dot-product, clustering or random.")] = "room",
    seeds: Annotated[int, typer.Option(help="Orders of arrival to try; seeds are 0, 1, 2 ...", min=1)] = 10,
    compare: Annotated[bool, typer.Option("--compare", help="Run all other policies as well.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: ARG001  (see main.py)
) -> int:
    """Place pods that share GPUs onto nodes, one after the other, and say how much of the GPUs is allocated.

    Pods arrive in random order, repeated as needed, until their demand reaches the GPU capacity. They never leave; a pod
    that fits nowhere is dropped.
    """
    from tonnage.allocate.packing.openb import parse_nodes, parse_pods
    from tonnage.allocate.packing.simulate import POLICIES, check_policy
    from tonnage.cli.output import progress

    check_policy(policy)
    cluster, workload = parse_nodes(_lines(nodes), str(nodes)), parse_pods(_lines(pods), str(pods))
    others = [name for name in POLICIES if name != policy] if compare else []
    with progress() as say:
        results = [_run(name, cluster, workload, seeds, say) for name in (policy, *others)]
    if as_json:
        import json

        print(json.dumps(_document(results, cluster)))
    else:
        _print(results, cluster)
    return 0


@dataclass(frozen=True)
class _Result:
    """All orders of arrival under one policy."""

    policy: str
    packings: tuple[Packing, ...]
    seconds: float

    @property
    def allocated_share(self) -> float:
        return sum(packing.allocated_share for packing in self.packings) / len(self.packings)

    def dropped_gpus(self) -> dict[str, float]:
        """GPU demand of dropped pods by what was lacking, mean of all orders."""
        reasons = self.packings[0].dropped_gpus
        return {reason: sum(p.dropped_gpus[reason] for p in self.packings) / len(self.packings) for reason in reasons}

    def as_dict(self) -> dict[str, Any]:
        return {
            "allocated_share": self.allocated_share,
            "policy": self.policy,
            "seconds": round(self.seconds, 3),
            "dropped_gpus": {reason: round(gpus, 3) for reason, gpus in self.dropped_gpus().items()},
            "seeds": [{"seed": p.seed, "allocated_share": p.allocated_share, "arrived_pods": len(p.arrivals),
                       "placed_pods": len(p.assignments)} for p in self.packings],
        }  # fmt: skip


def _run(
    policy: str, nodes: tuple[Node, ...], pods: tuple[Pod, ...], seeds: int, say: Callable[[str], None]
) -> _Result:
    import time

    from tonnage.allocate.packing.simulate import pack

    start, packings = time.perf_counter(), []
    for seed in range(seeds):
        say(f"{policy}: order {seed + 1} of {seeds}")
        packings.append(pack(nodes, pods, policy, seed))
    return _Result(policy, tuple(packings), time.perf_counter() - start)


def _lines(path: Path) -> list[str]:
    """The text of a file that may be gzipped, whatever its name. Raises `NotFound` or `InvalidFile`."""
    import gzip
    import io
    import zlib

    from tonnage.errors import InvalidFile, NotFound

    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidFile(f"{path} cannot be read: {error}") from None
    if len(content) > _MOST_BYTES:
        raise InvalidFile(f"{path} is larger than {_MOST_BYTES >> 20:,} MiB")
    try:
        return io.StringIO(content.decode("utf-8-sig"), newline="").readlines()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidFile(f"{path}, line {line}: this is no text in UTF-8") from None


def _document(results: list[_Result], nodes: tuple[Node, ...]) -> dict[str, Any]:
    document = results[0].as_dict() | {"capacity_gpus": sum(node.gpu_count for node in nodes)}
    if len(results) > 1:
        document["compared"] = [result.as_dict() for result in results[1:]]
    return document


def _print(results: list[_Result], nodes: tuple[Node, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    orders, gpus = len(results[0].packings), sum(node.gpu_count for node in nodes)
    console.print(
        f"{len(nodes):,} nodes with {gpus:,} GPUs, mean of {orders} order{'s' if orders > 1 else ''} of arrival"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", no_wrap=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        shares = [packing.allocated_share for packing in result.packings]
        table.add_row(
            result.policy, *(f"{share:.2%}" for share in (result.allocated_share, min(shares), max(shares))),
            *(f"{dropped:.1f}" for dropped in result.dropped_gpus().values()), f"{result.seconds:.1f} s",
        )  # fmt: skip
    console.print(table)
