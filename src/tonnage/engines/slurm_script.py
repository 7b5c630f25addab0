"""A job as a batch script that people can read: what it asks Slurm for, and what it does there. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tonnage.engines.base import EngineOptions, Job, Placement
from tonnage.engines.gpu_names import parse_types
from tonnage.engines.recording import without_recorder
from tonnage.engines.slurm_inventory import default_type
from tonnage.units import MIB

OWNER = "tonnage"  # the first word of the comment by which our jobs are found
COPY = "program"  # in the folder of a job: its own files
TOKEN, OUTPUT = "token", "output.log"
_NOT_KNOWN_YET = "SHARDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions(EngineOptions):
    """Where in the cluster, and how GPUs are asked for."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    time: str = ""  # the longest it may run, as sbatch reads it: 2:30:00 or 1-12
    folder: str = ""  # that all nodes see, for files and output of jobs; "": beside what was deployed
    gpu_types: str = ""  # H200=h200,L4=ada: what the cluster calls GPUs of the catalogue; "" asks it
    shards: int = 0  # that each GPU is divided into; 0 asks the cluster
    node_types: bool = True  # a node type that a label names is a feature of the nodes
    restarts: int = 3  # at most, of a job that may be started again and was killed
    extra: str = ""  # further options of sbatch, for each part of the job


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is known only when the job is submitted; until then, words in capitals stand for it."""

    folder: str = "FOLDER"
    token: str = "TOKEN"
    gpu_types: Mapping[str, str] = field(default_factory=dict, hash=False)  # by the names of the catalogue
    shards: Mapping[str, int] = field(default_factory=dict, hash=False)  # of one GPU, by type
    after: tuple[str, ...] | None = None  # Slurm's numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Nodes that are asked for alike, with one process on each. Slurm calls several of them a heterogeneous job."""

    nodes: int = 1
    names: tuple[str, ...] = ()
    gpu: str = ""
    gpu_count: int = 0
    share: float = 1.0


def parts_of(job: Job) -> tuple[Part, ...]:
    """One where all placements are alike, else one for each, so that ranks follow the order of the plan."""
    single = [_part(job, placement) for placement in job.placements or (Placement(gpu=job.resources.gpu),)]
    first = single[0]
    kinds = {(part.gpu, part.gpu_count, part.share, bool(part.names)) for part in single}
    if len(kinds) > 1:
        return tuple(single)
    names = tuple(name for part in single for name in part.names)
    return (
        Part(nodes=len(single), names=names, gpu=first.gpu, gpu_count=first.gpu_count, share=first.share),
    )  # fmt: skip


def _part(job: Job, placement: Placement) -> Part:
    return Part(
        names=(placement.node,) if placement.node else (),
        gpu=placement.gpu or job.resources.gpu,
        gpu_count=len(placement.gpu_indices) or job.resources.gpu_count,
        share=placement.share,
    )


def render(job: Job, options: SlurmOptions, terms: Terms) -> str:
    """The whole script."""
    parts = parts_of(job)
    asked = "\n#SBATCH hetjob\n".join(
        "\n".join(f"#SBATCH {line}" for line in ([*_of_job(job, terms)] if number == 0 else []) + [*lines])
        for number, lines in enumerate(_of_part(job, part, options, terms) for part in parts)
    )
    notes = "".join(f"# {note}\n" for note in _notes(job, terms))
    return f"#!/bin/bash\n{asked}\n{notes}\n{_body(job, parts, options, terms)}"


# -- what is asked for ----------------------------------------------------------------------------------------------------


def _of_job(job: Job, terms: Terms) -> Iterator[str]:
    folder = f"{terms.folder}/{job.name}"
    yield f"--job-name={job.name}"
    yield f"--comment={OWNER}:{job.name}:{terms.token}"
    yield f"--chdir={_quote(job.workdir or folder)}"
    yield f"--output={_quote(f'{folder}/{OUTPUT}'.replace('%', '%%'))}"  # a single % begins a pattern there
    yield "--open-mode=append"
    after = job.after if terms.after is None else terms.after
    if after:
        yield f"--dependency=afterany:{':'.join(after)}"


def _of_part(job: Job, part: Part, options: SlurmOptions, terms: Terms) -> Iterator[str]:
    for name in ("partition", "account", "qos", "reservation", "time"):
        if value := getattr(options, name):
            yield f"--{name}={_quote(value)}"
    yield f"--nodes={part.nodes}"
    yield "--ntasks-per-node=1"
    yield f"--cpus-per-task={_cores(job)}"
    yield f"--mem={-(-job.resources.memory_bytes // MIB)}M"
    if part.gpu_count:
        yield f"--gres={gres(part, options, terms)}"
    if part.names:
        yield f"--nodelist={','.join(part.names)}"
    if job.node_type and options.node_types:
        yield f"--constraint={_quote(job.node_type)}"
    yield "--requeue" if job.requeue else "--no-requeue"
    yield from map(_quote, shlex.split(options.extra))


def gres(part: Part, options: SlurmOptions, terms: Terms) -> str:
    """`gpu:v100:2`, or `shard:v100:8` for a part of one where the cluster divides them; else whole GPUs."""
    kind = type_of(part.gpu, options, terms)
    pieces = options.shards or terms.shards.get(kind)
    if part.share < 1 and pieces != 0:
        amount = _NOT_KNOWN_YET if pieces is None else str(math.ceil(part.share * pieces))
        return ":".join(filter(None, ["shard", kind, amount]))
    return ":".join(filter(None, ["gpu", kind, str(part.gpu_count)]))


def type_of(gpu: str, options: SlurmOptions, terms: Terms) -> str:
    if not gpu:
        return ""
    known = {**terms.gpu_types, **parse_types(options.gpu_types)}
    return known[gpu] if gpu in known else default_type(gpu)


def _cores(job: Job) -> int:
    return math.ceil(job.resources.cpu_cores)


def _quote(text: str) -> str:
    """As sbatch reads its lines, which is as a shell does."""
    return shlex.quote(text)


def _notes(job: Job, terms: Terms) -> Iterator[str]:
    if terms.token == Terms().token:
        yield "Words in capitals, and what the cluster calls a GPU, are filled in when the job is submitted."
    if job.environment:
        yield f"From the environment of sbatch: {', '.join(sorted(job.environment))}"
    if job.copied_words and job.source is not None:
        yield f"In {COPY}: a copy of {', '.join(sorted(without_recorder(job.source)))}"


# -- what it does ---------------------------------------------------------------------------------------------------------


def _body(job: Job, parts: tuple[Part, ...], options: SlurmOptions, terms: Terms) -> str:
    several = len(parts) > 1 or parts[0].nodes > 1
    pieces = [
        _BEGIN.format(folder=shlex.quote(f"{terms.folder}/{job.name}"), token=terms.token),
        "" if any(part.gpu_count for part in parts) else _NO_GPU,
        _meeting(parts) if several else "",
        _PROCESS.format(command=_command(job), ranks=_RANKS.format(world_size=_world_size(parts)) if several else ""),
        f"{_launch(job, parts)}bash -c process\ncode=$?\n",
        _OWN_CODE if several else "",
        _REQUEUE.format(restarts=options.restarts) if job.requeue else "",
        _END,
    ]
    return "".join(pieces)


def _world_size(parts: tuple[Part, ...]) -> int:
    return sum(part.nodes for part in parts)


def _command(job: Job) -> str:
    words = enumerate(job.command)
    return " ".join(
        f'"$TONNAGE_FOLDER"/{shlex.quote(f"{COPY}/{word}")}' if number in job.copied_words else shlex.quote(word)
        for number, word in words
    )


def _meeting(parts: tuple[Part, ...]) -> str:
    """Where the processes find each other: at the address by which Slurm itself reaches the node of rank 0."""
    first = parts[0].names[0] if parts[0].names else '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    return _MEETING.format(first=first)


def _launch(job: Job, parts: tuple[Part, ...]) -> str:
    """One process in the batch step itself, several as a step of their own."""
    if _world_size(parts) == 1:
        return ""
    words = ["srun", "--kill-on-bad-exit=1", f"--cpus-per-task={_cores(job)}"]
    if len(parts) > 1:
        words.append(f"--het-group=0-{len(parts) - 1}")
    elif parts[0].names:  # ranks in the order of the plan, not of the cluster
        words += ["--distribution=arbitrary", f"--nodelist={','.join(parts[0].names)}"]
    return " ".join(words) + " "


_BEGIN = """\
export TONNAGE_FOLDER={folder}
# Only the submission that the folder was made for may run: not one whose answer came too late and that was made again.
[ "$(cat "$TONNAGE_FOLDER/token")" = {token} ] || exit 0
rm -f "$TONNAGE_FOLDER"/devices.* "$TONNAGE_FOLDER/codes" "$TONNAGE_FOLDER/ended"
echo "$SLURM_JOB_ID $(date +%s)" >>"$TONNAGE_FOLDER/starts"
"""
_NO_GPU = """\
export CUDA_VISIBLE_DEVICES=
"""
_MEETING = """\
first={first}
export MASTER_ADDR=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
"""
_PROCESS = """\

process() {{
{ranks}\
    echo "$SLURMD_NODENAME ${{SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}}" >"$TONNAGE_FOLDER/devices.${{SLURM_PROCID:-0}}"
    # Aside with what bash itself says of a signal: it would print the whole command.
    {{ {command} 2>&3 3>&-; }} 3>&2 2>/dev/null
    local code=$?
    echo $code >>"$TONNAGE_FOLDER/codes"
    exit $code
}}
export -f process
"""
_RANKS = """\
    export RANK=$SLURM_PROCID WORLD_SIZE={world_size} LOCAL_RANK=0
"""
_OWN_CODE = """\
# Once one process has failed, srun ends the others: its own code would be that of the signal.
own=$(grep -m 1 -v '^0$' "$TONNAGE_FOLDER/codes")
code=${own:-$code}
"""
_REQUEUE = """\
# Killed by a signal: once more from the beginning, but not for ever.
if [ $code -gt 128 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {restarts} ]; then
    scontrol requeue "$SLURM_JOB_ID" && exit $code
fi
"""
_END = """\
echo "$code $(date +%s)" >"$TONNAGE_FOLDER/ended"
exit $code
"""
