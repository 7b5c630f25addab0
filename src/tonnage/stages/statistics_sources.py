"""Runtime statistics from where people name them: files, services, and the agents of the cluster's nodes, asked now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tonnage.errors import Unreachable, UsageError
from tonnage.hardware.cluster import Cluster
from tonnage.hardware.yaml_lines import parse_document
from tonnage.split.observations import Statistics, merged
from tonnage.split.statistics_file import read_statistics, statistics_in
from tonnage.stages.fetching import fetch, is_url
from tonnage.stages.measuring import Effort, agents_of, differences, see
from tonnage.stages.statistics_now import statistics_of
from tonnage.stages.tokens import read_token

AGENTS = "agents"
VALID_SECONDS = 300.0  # of what agents say, unless somebody knows better
QUICK = Effort(transfer_seconds=0.1)

Say = Callable[[str], None]


def read_sources(
    sources: Sequence[str],
    cluster: Cluster | None = None,
    *,
    token_file: Path | None = None,
    say: Say = lambda text: None,
    note: Say = lambda text: None,
) -> Statistics:
    """All that the sources tell, the newest of it: each a file, an http(s) address, or `agents`.

    `say` gets what is being done, `note` what the user should know: nodes that do not answer, and are lost.
    """
    return merged(*(_read(source, cluster, token_file, say, note) for source in sources))


def _read(source: str, cluster: Cluster | None, token_file: Path | None, say: Say, note: Say) -> Statistics:
    if source == AGENTS:
        return _ask_agents(cluster, token_file, say, note)
    if is_url(source):
        say(f"asking {source}")
        return statistics_in(parse_document(source, fetch(source)))
    return read_statistics(source)


def _ask_agents(cluster: Cluster | None, token_file: Path | None, say: Say, note: Say) -> Statistics:
    """As `tonnage cluster statistics` does."""
    if cluster is None:
        raise UsageError("whose agents to ask is not said", "name a file: --cluster cluster.yaml")
    agents, taken_at = agents_of(cluster, read_token(token_file)), time.time()
    seen = see(agents, QUICK, say)
    for sentence in (*differences(cluster, seen), *seen.failures):
        note(sentence)
    if not seen.nodes:
        raise Unreachable("no agent answers", "is tonnage cluster agent running on every node?")
    return statistics_of(seen, cluster, taken_at=taken_at, valid_seconds=VALID_SECONDS)
