"""What the nodes of a Slurm cluster have, from `scontrol show node`, and how it calls the GPUs of our catalogue. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tonnage.engines.base import NodeInventory
from tonnage.errors import DoesNotFit, NotFound
from tonnage.hardware.catalogue import find_gpu, normalise
from tonnage.units import MIB

# One of these in its state: the node takes no jobs, or not for long.
_AWAY = {
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVALID_REG", "MAINT", "NOT_RESPONDING",
    "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "UNKNOWN",
}  # fmt: skip

# One of these: Slurm has given up what ran there.
_LOST = {"DOWN", "POWERED_DOWN"}


def parse_nodes(text: str) -> tuple[NodeInventory, ...]:
    """Of `scontrol show node --oneliner`."""
    return tuple(_node(line) for line in text.splitlines() if line.startswith("NodeName="))


def _node(line: str) -> NodeInventory:
    # The first of each name: what an administrator wrote as a reason comes last, and may look like anything.
    fields = dict(reversed(re.findall(r"(\S+?)=(\S*)", line)))
    state, features = fields.get("State", "UNKNOWN"), fields.get("AvailableFeatures", "")
    return NodeInventory(
        name=fields["NodeName"],
        gpus=_counts(fields.get("Gres", ""), "gpu"),
        shards=_counts(fields.get("Gres", ""), "shard"),
        cpu_cores=int(fields.get("CPUEfctv") or fields["CPUTot"]),
        memory_bytes=int(fields["RealMemory"]) * MIB,
        features=tuple(features.split(",")) if features not in ("", "(null)") else (),
        state=state,
        is_up=not _AWAY & set(state.upper().split("+")),
        is_lost=bool(_LOST & set(state.upper().split("+"))),
    )


def _counts(gres: str, kind: str) -> dict[str, int]:
    """`gpu:v100:4(S:0-1),gpu:k80:2` as counts by type; without a type, that is ""."""
    counts: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = item.split(":")
        if name == kind and rest:
            model = rest[0] if len(rest) > 1 else ""
            counts[model] = counts.get(model, 0) + int(rest[-1])
    return counts


def default_type(gpu: str) -> str:
    """Before the cluster was asked: the model's own word in small letters, `a100` of A100 SXM 80GB."""
    words = find_gpu(gpu).name.lower().split()
    return "_".join(words[:2]) if words[0] in ("rtx", "gtx", "titan") else words[0]


def offered_type(gpu: str, nodes: Iterable[NodeInventory]) -> str:
    """What this cluster calls a GPU of the catalogue; raises `DoesNotFit` with the names that it has."""
    offered = sorted({kind for node in nodes for kind in node.gpus})
    exact = [kind for kind in offered if kind and _is(kind, gpu)]
    family = [kind for kind in offered if kind and normalise(kind) == normalise(default_type(gpu))]
    if found := exact or family:
        return found[0]
    listed = ", ".join(filter(None, offered)) or "none by name"
    raise DoesNotFit(
        f"the cluster has no GPUs that it calls {default_type(gpu)} or the like: it has {listed}",
        f"if one of them is meant: --option gpu_types='{gpu}=TYPE'",
    )


def _is(kind: str, gpu: str) -> bool:
    """Whether a type, as the driver or people write it (`nvidia_a100-sxm4-80gb`), is that GPU."""
    try:
        return find_gpu(kind).name == find_gpu(gpu).name
    except NotFound:
        return False


def shards_per_gpu(kind: str, nodes: Iterable[NodeInventory]) -> int:
    """The least of all nodes that divide GPUs of this type; 0 where none does."""
    shares = [node.shards[kind] // node.gpus[kind] for node in nodes if node.shards.get(kind) and node.gpus.get(kind)]
    return min(shares, default=0)


def check_feature(feature: str, nodes: Iterable[NodeInventory]) -> None:
    features = sorted({name for node in nodes for name in node.features})
    if feature not in features:
        raise NotFound(
            f"no node of the cluster has the feature {feature}; there are {', '.join(features) or 'none'}",
            "an administrator can add it to the nodes of that type; to take any node: --option node_types=false",
        )
