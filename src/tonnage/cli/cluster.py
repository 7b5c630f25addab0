"""`tonnage cluster`: check a cluster file, print its JSON Schema."""

import json
import sys
from collections import Counter
from typing import Annotated, Any

import typer

from tonnage.hardware import Cluster, Node, read_cluster
from tonnage.units import format_bytes

File = Annotated[str, typer.Argument(help="The cluster file, such as cluster.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, in bytes, watts and seconds.")]


def check_command(file: File, as_json: AsJson = False) -> None:
    """Check a cluster file and say what is in it."""
    cluster = read_cluster(file)
    if as_json:
        typer.echo(json.dumps(cluster_record(cluster), indent=2))
    else:
        _print_cluster(cluster)


def schema_command() -> None:
    """Print the JSON Schema of cluster files, for editors."""
    from tonnage.hardware.schema import published_schema

    typer.echo(published_schema(), nl=False)


def cluster_record(cluster: Cluster) -> dict[str, Any]:
    """A cluster as plain data: links with cluster-wide names, GPUs by name."""
    from dataclasses import asdict

    nodes = []
    for node in cluster.nodes:
        record = asdict(node)
        del record["links"]
        nodes.append(record | {"gpus": [gpu.name for gpu in node.gpus]})
    links = [asdict(link) for link in cluster.all_links()]
    return {
        "name": cluster.name,
        "nodes": nodes,
        "switches": list(cluster.switches),
        "links": links,
        "inputs": cluster.inputs,
        "outputs": cluster.outputs,
    }


def _print_cluster(cluster: Cluster) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    gpus = [gpu for _, gpu in cluster.gpus()]
    usable = format_bytes(sum(gpu.usable_bytes for gpu in gpus))
    console.print(f"{cluster.name}: {len(cluster.nodes)} nodes, {len(gpus)} GPUs, {usable} of usable GPU memory")
    table = Table("nodes", "GPUs of each", "cores", "memory", "links", box=SIMPLE_HEAD, pad_edge=False)
    groups = Counter(node.group for node in cluster.nodes)
    first = {node.group: node for node in reversed(cluster.nodes)}
    for group, count in groups.items():
        node = first[group]
        name = group if count == 1 else f"{group} x {count}"
        table.add_row(name, _gpus(node), str(node.cpu_cores), format_bytes(node.memory_bytes), _links(node))
    console.print(table)


def _gpus(node: Node) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(gpu.name for gpu in node.gpus).items()) or "none"


def _links(node: Node) -> str:
    kinds = {f"{link.kind} {link.bandwidth_bytes_second / 1e9:.0f} GB/s" for link in node.links}
    return ", ".join(sorted(kinds)) or "-"
