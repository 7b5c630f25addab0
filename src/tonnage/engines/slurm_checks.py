"""What can be said of a Slurm job before the cluster is asked. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import fields

from tonnage.engines.base import Job
from tonnage.engines.gpu_names import parse_types
from tonnage.engines.names import check_environment, check_labels, check_name
from tonnage.engines.ports import check_ports
from tonnage.engines.slurm_script import SlurmOptions
from tonnage.errors import UsageError

_NODE = re.compile(r"[A-Za-z0-9][\w.-]*")
_SLURMS_OWN = ("SLURM_", "SLURMD_", "SBATCH_")


def check_job(job: Job, options: SlurmOptions) -> None:
    check_name(job.name)
    check_labels(job.labels)
    check_environment(job.environment)
    check_ports(job.ports)
    for refused, reason, hint in _refusals(job):
        if refused:
            raise UsageError(reason, hint)
    _check_placements(job)
    _check_options(options)


def _refusals(job: Job) -> list[tuple[bool, str, str]]:
    slurms = [name for name in job.environment if name.startswith(_SLURMS_OWN)]
    return [
        (not job.command, "there is no command to run", ""),
        (bool(job.image), "Slurm jobs run without an image", "with a plugin: --option extra=--container-image=IMAGE"),
        (bool(job.mounts), "Slurm jobs see the folders of their nodes as they are: nothing can be mounted", ""),
        (bool(job.ports), "a Slurm job has no ports here", "leave --port out: the program can open them on its node"),
        (job.replicas > 0, "a Slurm job ends: it is no service", "--engine kubernetes runs services"),
        (bool(job.source and job.source.requirements), "Slurm jobs run with the packages that are installed", ""),
        (job.resources.numa_node is not None, "NUMA nodes cannot be chosen on Slurm", ""),
        (bool(slurms), f"{', '.join(slurms)} is Slurm's own", "leave it out of the job's environment"),
        ("\n" in "".join(job.after) or "\n" in job.workdir + job.node_type, "a name has several lines", ""),
    ]  # fmt: skip


def _check_placements(job: Job) -> None:
    nodes = Counter(placement.node for placement in job.placements if placement.node)
    for node, count in nodes.items():
        if not _NODE.fullmatch(node):
            raise UsageError(f"{node!r} cannot be the name of a node")
        if count > 1:
            raise UsageError(
                f"{count} placements are on {node}", "put their GPUs into one placement: one process uses them"
            )
    for placement in job.placements:
        count = len(placement.gpu_indices) or job.resources.gpu_count
        if not 0 < placement.share <= 1:
            raise UsageError(f"{placement.share:g} of a GPU is impossible")
        if placement.share < 1 and count > 1:
            raise UsageError(
                f"{count} GPUs are to be shared: Slurm gives a job a part of one GPU, or several whole ones"
            )


def _check_options(options: SlurmOptions) -> None:
    parse_types(options.gpu_types)
    for option in fields(options):
        value = getattr(options, option.name)
        if isinstance(value, str) and ("\n" in value or "\0" in value):
            raise UsageError(f"--option {option.name}= has several lines")
        if isinstance(value, int) and value < 0:
            raise UsageError(f"--option {option.name}={value} is negative")
    try:
        words = shlex.split(options.extra)
    except ValueError as error:
        raise UsageError(f"--option extra={options.extra}: {error}") from None
    if bad := next((word for word in words if not word.startswith("-")), ""):
        raise UsageError(f"--option extra=: {bad!r} is no option of sbatch", "write --name=value")
