"""`tonnage cluster measure` and `tonnage cluster statistics`: ask the agents of the nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tonnage.cli.cluster import AsJson
from tonnage.cli.cluster_agent import TokenFile
from tonnage.cli.output import progress

if TYPE_CHECKING:
    from tonnage.hardware import Cluster
    from tonnage.stages.contention import Together
    from tonnage.stages.measuring import Effort, Seen

_BUSY = 0.3

Repeats = Annotated[int, typer.Option(min=1, max=50, help="Transfers for each link, and looks at each node.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.01, max=10, help="Length of one transfer.")]
AtOnce = Annotated[bool, typer.Option("--at-once", help="Measure links that have no node in common at the same time.")]


def measure_command(
    cluster: Annotated[str | None, typer.Argument(help="The cluster file, with an address for each node.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the cluster file with what was measured here.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Describe this machine alone; no agent is asked.")] = False,
    reference: Annotated[str, typer.Option(help="Node whose speed is 1; the first by default.")] = "",
    repeats: Repeats = 5,
    transfer_seconds: Seconds = 0.3,
    at_once: AtOnce = False,
    contention: Annotated[bool, typer.Option(help="Look for links that several ways share.")] = True,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure nodes and links, and fill in the cluster file.

    Every node needs an address in the file and `tonnage cluster agent` running. A node that does not answer is named,
    what was measured is kept, and the exit code is 5.
    """
    from tonnage.errors import UsageError
    from tonnage.stages.measuring import Effort

    _check_writable(output)
    if local == (cluster is not None):
        raise UsageError("give either a cluster file or --local", "for example: tonnage cluster measure cluster.yaml")
    if local:
        _describe_here(output, as_json)
        return
    effort = Effort(repeats=repeats, transfer_seconds=transfer_seconds, at_once=at_once)
    _measure(str(cluster), output, reference, effort, contention, token_file, as_json)


def statistics_command(
    cluster: Annotated[str, typer.Argument(help="The cluster file, with an address for each node.")],
    output: Annotated[Path | None, typer.Option(help="Write the statistics here, and not to standard output.")] = None,
    valid: Annotated[str, typer.Option(help="For how long they hold, such as 90s or 10min.")] = "5min",
    links: Annotated[bool, typer.Option(help="Measure the links as well as the nodes.")] = True,
    repeats: Repeats = 5,
    transfer_seconds: Seconds = 0.1,
    at_once: AtOnce = False,
    token_file: TokenFile = None,
) -> None:
    """Take the runtime statistics of a cluster: load, free memory, observed speeds of nodes and links.

    A node that does not answer is lost in the statistics, named on standard error, and the exit code is 5.
    """
    import time

    from tonnage.cli.durations import read_duration
    from tonnage.split.statistics_file import statistics_text
    from tonnage.stages.measuring import Effort
    from tonnage.stages.statistics_now import statistics_of

    _check_writable(output)
    valid_seconds = read_duration("--valid", valid) or 300.0
    described, taken_at = _read(cluster), time.time()
    effort = Effort(repeats=repeats, transfer_seconds=transfer_seconds, at_once=at_once)
    seen, _ = _see(described, token_file, effort, links=links, contention=False)
    found = statistics_of(seen, described, taken_at=taken_at, valid_seconds=valid_seconds)
    _write(statistics_text(found), output)
    _raise_for_failures(seen, output)


def _measure(
    path: str, output: Path | None, reference: str, effort: Effort, contention: bool, token_file: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    from tonnage.cli.cluster_measure_table import measured_record, print_measured
    from tonnage.hardware.yaml_lines import read_document
    from tonnage.stages.fill_in import filled_in

    described = _read(path)
    reference = reference or described.nodes[0].name
    described.node(reference)  # raises for one that is not there
    seen, together = _see(described, token_file, effort, links=True, contention=contention)
    if output is not None and seen.nodes:
        content: Any = read_document(path).value
        _write(_yaml(filled_in(content, described, seen, together, reference)), output)
    if as_json:
        typer.echo(json.dumps(measured_record(seen, together, reference), indent=2))
    else:
        print_measured(seen, together, reference)
    for name, node in seen.nodes.items():
        if node.load > _BUSY:
            print(f"note: {name} was {node.load:.0%} in use; its speed may be more than was measured", file=sys.stderr)
    _raise_for_failures(seen, output)


def _read(path: str) -> Cluster:
    from tonnage.hardware import read_cluster

    return read_cluster(path)


def _see(
    cluster: Cluster, token_file: Path | None, effort: Effort, *, links: bool, contention: bool
) -> tuple[Seen, list[Together]]:
    from tonnage.stages.contention import see_contention
    from tonnage.stages.measuring import agents_of, differences, see
    from tonnage.stages.tokens import read_token

    agents = agents_of(cluster, read_token(token_file))
    with progress() as say:
        seen = see(agents, effort, say, links=links)
        together = see_contention(agents, seen, effort, say) if contention else []
    for sentence in differences(cluster, seen):
        print(f"note: {sentence}", file=sys.stderr)
    return seen, together


def _describe_here(output: Path | None, as_json: bool) -> None:
    from tonnage.stages.this_machine import this_machine

    content = this_machine(lambda sentence: print(f"note: {sentence}", file=sys.stderr))
    if output is not None or not as_json:
        _write(_yaml(content), output)
    if as_json:
        typer.echo(json.dumps(content, indent=2))


def _yaml(content: dict[str, Any]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - as PyYAML calls it
            return True

    return yaml.dump(content, Dumper=Plain, sort_keys=False, default_flow_style=None, width=1000, allow_unicode=True)


def _check_writable(output: Path | None) -> None:
    """Before anything is measured."""
    from tonnage.errors import NotFound, UsageError

    if output is None:
        return
    if not output.absolute().parent.is_dir():
        raise NotFound(f"no such folder: {output.absolute().parent}")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; give a file")


def _write(text: str, output: Path | None) -> None:
    """Aside first, so that a file that was there is never half gone; straight into what is no plain file."""
    from tonnage.errors import UsageError

    if output is None:
        typer.echo(text, nl=False)
        return
    aside = output if output.exists() and not output.is_file() else output.with_name(f".{output.name}.partial")
    try:
        aside.write_text(text, "utf-8")
        if aside != output:
            aside.replace(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from None


def _raise_for_failures(seen: Seen, output: Path | None) -> None:
    from tonnage.errors import Unreachable

    if not seen.failures:
        return
    for each in seen.failures:
        print(f"note: {each}", file=sys.stderr)
    names = [*seen.lost_nodes, *("->".join(pair) for pair in seen.lost_links)]
    kept = f"what was measured is in {output}" if output is not None and seen.nodes else ""
    raise Unreachable(f"not measured: {', '.join(names)}", kept or "is tonnage cluster agent running on every node?")
