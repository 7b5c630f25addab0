"""Slurm's own commands: run without a shell, their answers as lines, their errors as ours."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from tonnage.errors import DoesNotFit, NotFound, TonnageError, Unreachable, UsageError

_ANSWER_SECONDS = 120.0  # the commands give up by themselves much earlier
_READABLE = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}  # seconds since the epoch, whatever the zone


class Silent(Unreachable):
    """No answer came, and so nobody can tell whether the request arrived."""


class UnknownJob(NotFound):
    """Slurm does not know the job, or not any more."""


# The words of Slurm (22.05 to 25.05) for what users can do something about.
_MEANINGS: tuple[tuple[str, type[TonnageError], str], ...] = (
    (r"socket timed out|zero bytes were transmitted|receive failure|connection reset", Silent, ""),
    (r"unable to contact|connection refused|configuration (source|file)|authentication|munge", Unreachable, ""),
    (r"invalid job id", UnknownJob, ""),
    (r"invalid node name", NotFound, "`sinfo -N` lists the nodes"),
    (r"node configuration is not available|can not be satisfied|node count specification", DoesNotFit,
     "`sinfo -N -o '%N %c %m %G %f'` shows what the nodes have"),
    (r"invalid feature", NotFound, "`sinfo -o %f` lists the features of nodes"),
    (r"invalid generic resource|invalid gres", NotFound, "`sinfo -o %G` lists them; --option gpu_types= translates names"),
    (r"invalid partition", NotFound, "`sinfo -s` lists the partitions"),
    (r"reservation is invalid", NotFound, "`scontrol show reservation` lists them"),
    (r"invalid account|invalid qos", UsageError, "--option account= and --option qos= name what you may use"),
)  # fmt: skip


def run(*words: str, environment: Mapping[str, str] | None = None) -> str:
    """What the command prints; a `TonnageError` of the right kind if it fails. A job inherits what `environment` says."""
    command, *arguments = words
    path = shutil.which(command)  # by our own PATH: the environment of a job may have another one
    if path is None:
        raise Unreachable(f"{command} is not installed on this machine", "log in to a machine that can submit jobs")
    try:
        done = subprocess.run(
            [path, *arguments], capture_output=True, encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS, check=False, env={**os.environ, **_READABLE} if environment is None else environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Silent(f"{command} did not answer in {_ANSWER_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise error(command, done.stderr or done.stdout)
    return done.stdout


def error(command: str, said: str) -> TonnageError:
    """Slurm's own words as one sentence, and what they mean for the user."""
    message = _sentence(said)
    for pattern, kind, hint in _MEANINGS:
        if re.search(pattern, said, re.IGNORECASE):
            if issubclass(kind, Unreachable):
                return kind(f"Slurm does not answer: {message}", "`scontrol ping` asks it as well")
            return kind(f"Slurm says: {message}", hint)
    return UsageError(f"{command} says: {message}")


def _sentence(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Try ")]
    last = lines[-1] if lines else "no word about why"
    return re.sub(r"^(\w+: (error|fatal): |\w+ error: )?(Batch job submission failed: )?", "", last)
