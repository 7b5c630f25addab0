"""The jobs whose manifests are kept in tests/golden/engines, by the name of their file."""

from __future__ import annotations

from tonnage.engines.base import Engine, EngineOptions, Job, Mount, Resources, Source
from tonnage.engines.container_arguments import ContainerOptions
from tonnage.engines.containers import DockerEngine, PodmanEngine
from tonnage.engines.kubernetes import KubernetesEngine
from tonnage.engines.kubernetes_manifest import KubernetesOptions
from tonnage.engines.local import LocalEngine

GIB = 1 << 30
DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

TRAIN = Job(
    name="train-vit",
    image="registry.example/pytorch@" + DIGEST,
    command=("python3", "train.py", "--batch-size", "64"),
    workdir="/app",
    source=Source(files={"train.py": b"import model\nprint('train')\n", "model.py": b"LAYERS = 12\n"}, digest=DIGEST),
    resources=Resources(
        cpu_cores=6, memory_bytes=48 * GIB, gpu_count=2, gpu="H200", shared_memory_bytes=8 * GIB, one_numa_node=True
    ),
    environment={"TONNAGE_LOADER_WORKERS": "4"},
    labels={"tonnage.label": "7f3c", "tonnage.program-digest": DIGEST},
)
SERVE = Job(
    name="serve-vit",
    image="registry.example/server:1.2",
    command=("server", "--port", "8000"),
    resources=Resources(cpu_cores=1.5, memory_bytes=GIB + 512),
    ports=((80, 8000),),
    replicas=3,
    mounts=(Mount(source="pvc:models", target="/models"),),
    node_type="hopper",
)
ON_NODE = Job(
    name="on-node",
    image="localhost/python:3",
    command=("python3", "-c", "print('a b')"),
    resources=Resources(cpu_cores=4, memory_bytes=2 * GIB, numa_node=1),
    ports=((8080, 80),),
    mounts=(Mount(source="/data", target="/data"), Mount(source="/tmp", target="/out", read_only=False)),
    environment={"TOKEN": "secret", "PATH": "/opt/bin"},
)
LOCAL = Job(
    name="train-here",
    command=("/usr/bin/python3", "/home/me/train.py", "--name", "a b"),
    workdir="/home/me",
    resources=Resources(cpu_cores=2, memory_bytes=4 * GIB, gpu_count=1, gpu="H200"),
    environment={"OMP_NUM_THREADS": "2"},
)

MANIFESTS: dict[str, tuple[Engine, Job, EngineOptions]] = {
    "kubernetes-job.yaml": (KubernetesEngine(), TRAIN, KubernetesOptions(namespace="vision")),
    "kubernetes-job-dra.yaml": (KubernetesEngine(), TRAIN, KubernetesOptions(dra=True)),
    "kubernetes-service.yaml": (
        KubernetesEngine(),
        SERVE,
        KubernetesOptions(
            node_type_label="tonnage.io/node-type",
            runtime_class="nvidia",
            service_account="server",
            pull_secret="registry",
            priority_class="high",
        ),
    ),
    "podman-train.txt": (PodmanEngine(), TRAIN, ContainerOptions()),
    "podman-numa.txt": (PodmanEngine(), ON_NODE, ContainerOptions(user="", network="none")),
    "docker-train.txt": (DockerEngine(), TRAIN, ContainerOptions(devices="2,3")),
    "local-train.txt": (LocalEngine(), LOCAL, EngineOptions()),
}
