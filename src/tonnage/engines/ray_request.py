"""What is sent to Ray for a job: a small request to its Jobs API, and a working folder with the program and its order.

Pure. The order is read by `ray_driver`, which travels along in the folder and so needs no Tonnage on the cluster.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.engines.base import EngineOptions, Job, Placement
from tonnage.engines.containerfile import FOLDER
from tonnage.engines.gpu_names import parse_types
from tonnage.engines.names import check_environment, check_labels, check_name
from tonnage.errors import UsageError

Document = dict[str, Any]

OWN_LABEL, LABEL_PREFIX = "tonnage.job", "label:"  # among the metadata of a job
START = "START"  # stands in a plan for the mark of a submission, which is made when it is sent
_HERE = Path(__file__).parent
_DRIVER, _KEEPER = _HERE / "ray_driver.py", _HERE / "ray_keeper.py"
_OWN_FOLDER = ".tonnage"
_ORDER = "order.json"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the same files are the same package
_MANY_BYTES = 100 << 20  # the largest request that the dashboard takes
# Modules whose package Ray adds to what the driver calls them.
_PACKAGES = {name: f"{name}-OAM" for name in ("AMD-Instinct-MI300X", "AMD-Instinct-MI325X")}
# Ray's own way to ask for a model: a sliver of a resource that every node of that model has.
_SLIVER = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions(EngineOptions):
    """How jobs run on the cluster."""

    restarts: int = 3  # at most, of a job that may be started again
    grace_seconds: float = 10.0  # from SIGTERM to SIGKILL
    node_label: str = "tonnage.node"  # the label with the name that the cluster file gives a node
    gpu_types: str = ""  # V100 SXM2 16GB=V100,L4=ADA: what Ray calls GPUs of the catalogue, where it is not the usual
    node_type_label: str = ""  # the label with a node's type; "": a job of any type goes anywhere
    python: str = "python3"  # on the cluster, with Ray in it
    check_nodes: bool = True  # refuse what no node could hold; not for clusters that add nodes by themselves


def request_of(job: Job, options: RayOptions, start: str = START) -> Document:
    """For `POST /api/jobs/`. Secrets are in the order and not in here, where every user of the cluster reads them."""
    runtime: Document = {"working_dir": f"gcs://{package_name(job, start)}"}
    if job.source is not None and job.source.requirements:
        runtime["pip"] = list(job.source.requirements)
    return {
        "submission_id": job.name,
        "entrypoint": f"{options.python} {_OWN_FOLDER}/{_DRIVER.name} {start}",
        "runtime_env": runtime,
        "metadata": {OWN_LABEL: job.name} | {LABEL_PREFIX + key: value for key, value in job.labels.items()},
    }


def package_name(job: Job, start: str) -> str:
    return f"tonnage-{job.name}-{start}.zip"


def order_of(job: Job, options: RayOptions) -> Document:
    """What the driver shall do, on the cluster."""
    return {
        "name": job.name,
        "command": _command(job),
        "copied_words": list(job.copied_words),
        "workdir": "" if job.workdir == FOLDER else job.workdir,  # that of images: here it is the working folder
        "has_files": job.source is not None,
        "environment": dict(job.environment),
        "after": list(job.after),
        "restarts": options.restarts if job.requeue else 0,
        "grace_seconds": options.grace_seconds,
        "node_label": options.node_label,
        "strategy": _strategy(job.placements),
        "places": [_place(job, placement, options) for placement in job.placements or (_anywhere(job),)],
    }


def package_of(job: Job, options: RayOptions) -> bytes:
    """The working folder, packed: the program's files as they were read, the order, and who carries it out."""
    files = dict(job.source.files) if job.source is not None else {}
    for path in (_DRIVER, _KEEPER):
        files[f"{_OWN_FOLDER}/{path.name}"] = path.read_bytes()
    files[f"{_OWN_FOLDER}/{_ORDER}"] = json.dumps(order_of(job, options), indent=1).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def check_job(job: Job, options: RayOptions) -> None:
    """Raises `UsageError` for what Ray cannot do, before anything is sent."""
    check_name(job.name)
    check_labels(job.labels)
    check_environment(job.environment)
    parse_types(options.gpu_types)
    for is_refused, reason, hint in _refusals(job, options):
        if is_refused:
            raise UsageError(reason, hint)


def ray_model(gpu: str) -> str:
    """What Ray calls a GPU of the catalogue: `Tesla V100-SXM2-16GB` is V100, `NVIDIA GeForce RTX 3090` keeps its words."""
    from tonnage.hardware.catalogue import find_gpu

    called = find_gpu(gpu).driver_name
    taken: list[str] = []
    for word in called.split()[1:]:
        taken.append(word.partition("-")[0])
        if taken[-1] != taken[-1].upper():
            break
        if any(letter.isdigit() for letter in taken[-1]):
            return "-".join(taken)
    name = called.removeprefix("NVIDIA ").replace(" ", "-")
    return _PACKAGES.get(name, name)


def _refusals(job: Job, options: RayOptions) -> list[tuple[bool, str, str]]:
    size = sum(map(len, job.source.files.values())) if job.source is not None else 0
    outside = [name for name in job.source.files if _leaves(name)] if job.source is not None else []
    split = [p for p in job.placements if p.share < 1 and _gpu_count(job, p) > 1]
    odd = [p.share for p in job.placements if not 0.0001 <= p.share <= 1]  # nor NaN; Ray counts in ten-thousandths
    plain = "the program's packages come with --requirements, its files with --folder"
    return [
        (bool(job.image), "Ray runs programs with what its nodes have: an image cannot be chosen", plain),
        (bool(job.mounts), "nothing can be mounted on Ray: a program sees its node's folders as they are", ""),
        (bool(job.ports), "ports cannot be mapped on Ray: a program has those of its node", ""),
        (job.replicas > 0, "a job on Ray ends: services are not started there", "--engine kubernetes can do that"),
        (job.resources.numa_node is not None, "NUMA nodes cannot be chosen on Ray", "leave --numa-node out"),
        (bool(outside), f"{''.join(outside[:1])} would be outside of the program's folder", ""),
        (size > _MANY_BYTES, f"the program's files have {size:,} bytes, Ray takes {_MANY_BYTES:,}", "leave data out"),
        (bool(odd), f"a share of {odd[0] if odd else 1:g} of a GPU is impossible", "from 0.0001 to 1"),
        (bool(split), "Ray shares one GPU at a time: no job can have parts of several", "give it whole GPUs"),
        (options.restarts < 0, f"{options.restarts} restarts are impossible", ""),
    ]


def _leaves(name: str) -> bool:
    return name.startswith("/") or ".." in Path(name).parts


def _command(job: Job) -> list[str]:
    """This Python is not on the nodes; there it is the one that Ray runs with."""
    program, *arguments = job.command
    return ["python3" if program == sys.executable else program, *arguments]


def _anywhere(job: Job) -> Placement:
    return Placement(gpu=job.resources.gpu)


def _gpu_count(job: Job, placement: Placement) -> int:
    """As many as were planned; a placement that names none has what each process of the job has."""
    return len(placement.gpu_indices) or job.resources.gpu_count


def _place(job: Job, placement: Placement, options: RayOptions) -> Document:
    """What one process of the job needs, in the words of Ray's bundles."""
    gpus = _gpu_count(job, placement) * placement.share
    gpu = placement.gpu or job.resources.gpu
    bundle: dict[str, float] = {"CPU": job.resources.cpu_cores, "memory": float(job.resources.memory_bytes)}
    if gpus:
        bundle["GPU"] = round(gpus, 4)
    if gpus and gpu:
        bundle[f"accelerator_type:{parse_types(options.gpu_types).get(gpu) or ray_model(gpu)}"] = _SLIVER
    labels = {options.node_type_label: job.node_type} if job.node_type and options.node_type_label else {}
    return {"node": placement.node, "labels": labels, "bundle": bundle}


def _strategy(placements: tuple[Placement, ...]) -> str:
    """A placement is a node's part of a job, so each goes to another node; a plan may name one node twice all the same."""
    if len(placements) < 2:
        return "PACK"
    named = Counter(placement.node for placement in placements if placement.node)
    return "SPREAD" if any(count > 1 for count in named.values()) else "STRICT_SPREAD"
