"""How much of a node a program is given beside its GPUs: as the rules say, and everything else that could be tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from tonnage.configure.inventory import Candidate
from tonnage.configure.predict import Sizing
from tonnage.configure.rules import Amount, Decision, Fields
from tonnage.configure.work import Work

_MOST_WORKERS = 64  # of one process; more than that no loader makes use of


def size(work: Work, candidate: Candidate, decision: Decision, fields: Fields) -> Sizing:
    """By the rules, and never more than the node has. Amounts are for one GPU's process."""
    node, count, then = candidate.node, max(candidate.gpu_count, 1), decision.then
    own_workers = work.indicators.loader_workers or 0
    cores_each = min(max(_amount(then.cpu_cores, fields, 2), 1), candidate.cores_each)
    cores = cores_each * count
    workers = min(_amount(then.loader_workers, fields, own_workers), _MOST_WORKERS, max(cores_each - 1, 0))
    return Sizing(
        cpu_cores=cores,
        sockets=_sockets(candidate, cores) if then.sockets != "all" else node.cpu_sockets,
        memory_bytes=min(wanted_bytes(candidate, decision, fields), node.memory_bytes),
        loader_workers=workers,
        pinned_memory=work.indicators.pinned_share > 0.5 if then.pinned_memory is None else then.pinned_memory,
    )


def wanted_bytes(candidate: Candidate, decision: Decision, fields: Fields) -> int:
    """Host memory of all processes, whether the node has it or not."""
    return max(_amount(decision.then.memory_bytes, fields, 8 << 30), 1) * max(candidate.gpu_count, 1)


def all_sizes(candidate: Candidate, by_rules: Sizing) -> Iterator[Sizing]:
    """Everything that changes the time: workers from none to as many as there are cores for, and pinned memory."""
    count = max(candidate.gpu_count, 1)
    most = min(max(candidate.cores_each - 1, 0), _MOST_WORKERS)
    for workers in sorted({0, *(w for w in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48) if w <= most), most}):
        cores = max(by_rules.cpu_cores, min((workers + 1) * count, candidate.node.cpu_cores))
        for pinned in (False, True):
            yield replace(
                by_rules,
                cpu_cores=cores,
                sockets=max(by_rules.sockets, _sockets(candidate, cores)),
                loader_workers=workers,
                pinned_memory=pinned,
            )


def _amount(amount: Amount | None, fields: Fields, otherwise: int) -> int:
    return otherwise if amount is None else amount.of(fields)


def _sockets(candidate: Candidate, cores: int) -> int:
    node = candidate.node
    each = max(node.cpu_cores // node.cpu_sockets, 1)
    return min(max(ceil(cores / each), 1), node.cpu_sockets)
