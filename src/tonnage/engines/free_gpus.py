"""GPUs of this machine that no job of ours holds. The engines are asked, so that what has ended or died holds none."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from tonnage.engines.base import Engine, HoldsGpus, JobId, Resources
from tonnage.engines.deploying import Deployments
from tonnage.engines.folders import state_folder
from tonnage.engines.registry import find_engine
from tonnage.errors import DoesNotFit, NotFound, Unreachable, UsageError

GPU_KIND = "nvidia.com/gpu"  # a GPU is called by its CDI name everywhere: nvidia.com/gpu=0


class GpusHeld(DoesNotFit):
    """Not now: another job holds what is wanted, and may end."""


@contextmanager
def gpu_holders(own: Engine, wanted: int) -> Iterator[Mapping[str, JobId]]:
    """GPUs with the jobs that hold them. Nobody else chooses until the block ends, by when the new job can be seen."""
    if wanted == 0:
        yield {}
        return
    with open(state_folder() / "gpus.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield _read_holders(own)


def choose_free(wanted: int, candidates: Sequence[str], holders: Mapping[str, JobId], model: str = "") -> list[str]:
    """The first that are free; raises `DoesNotFit` with who holds the others."""
    free = [gpu for gpu in candidates if gpu not in holders]
    if len(free) >= wanted:
        return free[:wanted]
    kind = f"{model} GPUs" if model else "GPUs"
    held = [f"{holders[gpu]} holds {gpu}" for gpu in candidates if gpu in holders]
    raise DoesNotFit(
        f"{wanted} {kind} are wanted, this machine has {len(candidates)}, {len(free) or 'none'} of them free",
        f"{', '.join(held)}; wait, or end one with tonnage stop",
    )


def choose_planned(
    resources: Resources, kind: str, candidates: Sequence[str], holders: Mapping[str, JobId]
) -> list[str]:
    """The GPUs that a plan names; raises `DoesNotFit` where one is not there, `GpusHeld` where another job has it."""
    planned = [f"{kind}={index}" for index in resources.gpu_indices]
    for gpu in planned:
        if gpu not in candidates:
            raise DoesNotFit(f"{gpu} is planned, this machine has {', '.join(candidates) or 'no GPUs'}")
        if gpu in holders and not resources.shares_gpus:
            raise GpusHeld(f"{gpu} is planned, {holders[gpu]} holds it", "wait, or end it with tonnage stop")
    return planned


def _read_holders(own: Engine) -> dict[str, JobId]:
    holders: dict[str, JobId] = {}
    for engine in _engines(own):
        with suppress(Unreachable):  # what does not answer cannot be asked, and must not stop the others
            holders |= dict(engine.held_gpus())
    return holders


def _engines(own: Engine) -> Iterator[HoldsGpus]:
    """This one, and all others that something was deployed on."""
    names = {deployment.engine for deployment in Deployments().all()} - {own.name}
    found = [own]
    for name in sorted(names):
        with suppress(NotFound, UsageError):  # of a package that is not installed any more
            found.append(find_engine(name))
    return (engine for engine in found if isinstance(engine, HoldsGpus))
