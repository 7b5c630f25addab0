"""The machines of an engine as a cluster, so that a plan for it needs no cluster file."""

from __future__ import annotations

import os

from tonnage.engines.base import Engine, EngineOptions, HasInventory, HoldsGpus, NodeInventory
from tonnage.errors import DoesNotFit, NotFound, UsageError
from tonnage.hardware.catalogue import find_gpu
from tonnage.hardware.cluster import Cluster, Node
from tonnage.hardware.gpu import Gpu
from tonnage.hardware.probe import Nvml, probe

_HERE = "here"
_HINT = "describe the machines: --cluster cluster.yaml"


def cluster_of(engine: Engine, options: EngineOptions) -> Cluster:
    """Its nodes that are up and have GPUs. How these are linked no engine tells."""
    if isinstance(engine, HoldsGpus):
        return this_machine()
    if not isinstance(engine, HasInventory):
        raise UsageError(f"{engine.name} does not tell which machines it has", _HINT)
    there = [node for node in engine.inventory(options) if node.is_up and node.gpus]
    if not there:
        raise DoesNotFit(f"{engine.name} has no node with GPUs that takes jobs", _HINT)
    names = sorted({name for node in there for name in node.gpus})
    models = {name: _model(engine, name, options) for name in names}
    return Cluster(name=engine.name, nodes=tuple(_node(node, models) for node in there))


def this_machine(nvml: Nvml | None = None) -> Cluster:
    """Its GPUs, as the driver tells them."""
    gpus = probe(nvml).gpus
    if unknown := [each.name for each in gpus if each.gpu is None]:
        raise NotFound(f"the catalogue has no {unknown[0]}", _HINT)
    node = Node(
        name=_HERE,
        group=_HERE,
        cpu_cores=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=tuple(each.gpu for each in gpus if each.gpu is not None),
    )
    return Cluster(name=_HERE, nodes=(node,))


def _node(node: NodeInventory, models: dict[str, Gpu]) -> Node:
    gpus = tuple(models[name] for name in sorted(node.gpus) for _ in range(node.gpus[name]))
    return Node(
        name=node.name, group=node.name, cpu_cores=node.cpu_cores, memory_bytes=node.memory_bytes, gpus=gpus
    )  # fmt: skip


def _model(engine: HasInventory, name: str, options: EngineOptions) -> Gpu:
    """The one of the catalogue that is meant; raises where that cannot be told."""
    found = engine.models_called(name, options)
    if len(found) == 1:
        return find_gpu(found[0])
    meant = found[0] if found else "GPU"
    hint = f"say which: --option gpu_types='{meant}={name}', or {_HINT}"
    if not name:
        raise NotFound("the engine does not tell the model of its GPUs", hint)
    if found:
        raise UsageError(f"the GPUs that the engine calls {name} may be {', '.join(found)}", hint)
    raise NotFound(f"the GPUs that the engine calls {name} are none of the catalogue", hint)
