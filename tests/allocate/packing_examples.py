"""Small clusters and pods in the likeness of openb: CPU-rich and CPU-poor nodes, shares that pair badly, eight-GPU pods."""

from dataclasses import replace

import numpy as np

from tonnage.allocate.packing.pods import Node, Pod


def node(name: str = "n", cpu: int = 96_000, memory: int = 400_000, gpus: int = 8, model: str = "G2") -> Node:
    return Node(name=name, cpu_milli=cpu, memory_mib=memory, gpu_count=gpus, model=model)


def pod(
    cpu: int = 1000, memory: int = 1000, gpus: int = 1, milli: int = 1000, models: str = "", name: str = "p"
) -> Pod:
    accepted = frozenset(models.split("|")) if models else frozenset[str]()
    return Pod(name=name, cpu_milli=cpu, memory_mib=memory, gpu_count=gpus, gpu_milli=milli, models=accepted)


def small_cluster() -> tuple[Node, ...]:
    """160 GPUs: most on balanced nodes, some with many CPUs for two GPUs, some with few for two."""
    return (
        *(node(f"g{i}") for i in range(14)),
        *(node(f"t{i}", cpu=104_000, memory=524_288, gpus=2, model="T4") for i in range(12)),
        *(node(f"p{i}", cpu=16_000, memory=122_880, gpus=2, model="P100") for i in range(12)),
    )


def small_workload() -> tuple[Pod, ...]:
    """What the list of openb is made of, in about its proportions."""
    kinds = [
        (pod(3152, 5600, 1, 810), 26), (pod(11_300, 49_152), 35), (pod(3152, 5600), 12), (pod(18_708, 64_512), 7),
        (pod(11_908, 47_104, 1, 470), 10), (pod(8000, 30_517, 1, 470), 9), (pod(12_500, 57_344, 0, 0), 18),
        (pod(11_908, 47_104, 1, 650), 6), (pod(4000, 22_888, 1, 320), 8), (pod(4000, 15_258, 1, 160), 2),
        (pod(64_200, 263_168, 8), 1), (pod(32_200, 132_096, 4), 1), (pod(9810, 41_560), 10),
    ]  # fmt: skip
    return tuple(replace(kind, name=f"pod-{n}-{i}") for n, (kind, count) in enumerate(kinds) for i in range(count))


def random_instance(seed: int) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    """Any nodes and any pods, some of which fit nowhere."""
    random = np.random.default_rng(seed)
    models = ("A", "B", "")

    def number(low: int, high: int) -> int:
        return int(random.integers(low, high))

    nodes = tuple(
        node(f"n{i}", number(1, 60), number(1, 60), number(0, 5), models[number(0, 3)]) for i in range(number(1, 90))
    )
    pods = []
    for i in range(number(1, 40)):
        gpus = number(0, 4)
        milli = number(1, 1001) if gpus == 1 else 1000 if gpus else 0
        wanted = ("", "A", "A|B", "C")[number(0, 4)] if gpus else ""
        pods.append(pod(number(0, 30), number(0, 30), gpus, milli, wanted, f"p{i}"))
    return (*nodes, node("last", 50, 50, 4, "A")), (*pods, pod(1, 1, 1, 500))
