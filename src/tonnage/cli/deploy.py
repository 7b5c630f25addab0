"""`tonnage deploy`: put a program on an engine."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tonnage.engines.base import Engine, EngineOptions, Job, JobStatus, Mount
    from tonnage.engines.deploying import Deployment
    from tonnage.engines.jobs import Surroundings

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def deploy_command(
    context: typer.Context,
    program: Annotated[Path, typer.Argument(help="A script, a label from tonnage configure, or a service.yaml.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The script's own arguments, after --.")] = None,
    engine: Annotated[
        str, typer.Option("--engine", "-e", help="local, podman, docker, kubernetes, slurm or ray.")
    ] = "local",
    image: Annotated[str, typer.Option(help="The image that the program is put on; it must have python3.")] = "",
    name: Annotated[str, typer.Option(help="What it is called; else the program's name and five letters.")] = "",
    cpus: Annotated[float | None, typer.Option(help="CPU cores; else one.", min=0.01)] = None,
    memory: Annotated[str, typer.Option(help="Memory, such as 16GiB, without swap; else 4GiB.")] = "",
    gpus: Annotated[int | None, typer.Option(help="Number of GPUs.", min=0)] = None,
    gpu: Annotated[str, typer.Option("--gpu", "-g", help="Only GPUs of this model.")] = "",
    shared_memory: Annotated[str, typer.Option(help="For data loaders' workers, such as 2GiB.")] = "",
    pids: Annotated[int, typer.Option(help="Processes and threads at most.", min=1)] = 4096,
    numa_node: Annotated[int | None, typer.Option(help="Cores and memory of this NUMA node alone.", min=0)] = None,
    port: Annotated[list[str] | None, typer.Option(help="HERE:THERE, a port of the job on 127.0.0.1.")] = None,
    mount: Annotated[list[str] | None, typer.Option(help="HERE:THERE, or HERE:THERE:rw to write.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, or NAME as it is set here.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Take this whole folder, not only what is imported.")] = None,
    requirements: Annotated[Path | None, typer.Option(help="Packages for the image, as pip reads them.")] = None,
    replicas: Annotated[int, typer.Option(help="A service of so many instances, not a job that ends.", min=0)] = 0,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE, of the engine alone.")] = None,
    set_loaders: Annotated[
        bool, typer.Option("--set-loaders", help="Data loaders without workers get those that the label counts on.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be submitted, and do nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is over, or answers at its port.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most.", min=0.1)] = None,
    as_json: AsJson = False,
) -> int:
    """Put PROGRAM on an engine with exactly these resources, or with those of a signed label or a service file.

    With --wait, the exit code is that of the program: tonnage deploy train.py --wait -- --epochs 3
    """
    from tonnage.cli.deploy_label import notes_of, refuse_contradictions
    from tonnage.cli.deploy_service import Asked, deploy_service, is_service_file
    from tonnage.cli.typed import typed_options
    from tonnage.engines.jobs import check_image, check_script, hardware_of, job_of
    from tonnage.engines.options import parse_options
    from tonnage.engines.registry import find_engine
    from tonnage.errors import UsageError
    from tonnage.service.label_program import is_label

    chosen = find_engine(engine)
    options = parse_options(chosen.Options, option or [])
    if is_service_file(program):
        asked = Asked(chosen, options, name, dry_run, wait, timeout, as_json)
        return deploy_service(program, asked, typed_options(context))
    surroundings = _surroundings(port or [], mount or [], env or [], replicas, pids, numa_node, shared_memory)
    finish = partial(_finish, chosen, options, dry_run, wait, timeout, as_json)
    if is_label(program):
        from tonnage.service.label_jobs import job_of_label

        refuse_contradictions(
            program, image=image, cpus=cpus, memory=memory, gpus=gpus, gpu=gpu, folder=folder,
            requirements=requirements, arguments=arguments,
        )  # fmt: skip
        with job_of_label(program, engine, name, surroundings, only_look=dry_run, set_loaders=set_loaders) as job:
            after = finish(job)
        for note in notes_of(job, engine, options):
            print(f"note: {note}", file=sys.stderr)
        return after()
    if set_loaders:
        raise UsageError("--set-loaders goes by a label", "deploy one, or set num_workers in the program")
    check_script(program)
    check_image(engine, image)
    hardware = hardware_of(cpus or 1.0, _bytes("--memory", memory or "4GiB"), gpus, gpu)
    job = job_of(
        hardware, program, arguments or [], image=image, name=name, folder=folder,
        requirements=requirements, surroundings=surroundings,
        copy=engine != "local",  # a shared file system shows the nodes what the script is by then
    )  # fmt: skip
    return finish(job)()


def _finish(
    engine: Engine, options: EngineOptions, dry_run: bool, wait: bool, timeout: float | None, as_json: bool, job: Job
) -> Callable[[], int]:
    """Submit, or print what would be; what is returned waits and tells, for which no label has to be held."""
    from tonnage.engines.deploying import deploy

    if dry_run:
        _print_manifest(engine, job, engine.plan(job, options).text, as_json)
        return lambda: 0
    return partial(_report, deploy(job, engine, options), engine, wait, timeout, as_json)


# -- what the user has typed ----------------------------------------------------------------------------------------------


def _surroundings(
    ports: list[str],
    mounts: list[str],
    variables: list[str],
    replicas: int,
    pids: int,
    numa_node: int | None,
    shared: str,
) -> Surroundings:
    from tonnage.engines.jobs import Surroundings

    return Surroundings(
        environment=dict(map(_variable, variables)),
        mounts=tuple(map(_mount, mounts)),
        ports=tuple(map(_port, ports)),
        labels={},
        replicas=replicas,
        pids=pids,
        numa_node=numa_node,
        shared_memory_bytes=_bytes("--shared-memory", shared) if shared else None,
    )


def _bytes(option: str, text: str) -> int:
    from tonnage.errors import UsageError
    from tonnage.hardware.quantities import parse_bytes

    try:
        count = parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", f"for example: {option} 16GiB") from None
    if count < 1 << 20:
        raise UsageError(f"{option} {text} is too little for any program")
    return count


def _port(text: str) -> tuple[int, int]:
    from tonnage.errors import UsageError

    here, _, there = text.partition(":")
    if not here.isdigit() or not (there or here).isdigit():
        raise UsageError(f"--port {text} is not HERE:THERE", "for example: --port 8080:80")
    return int(here), int(there or here)


def _mount(text: str) -> Mount:
    from tonnage.engines.base import Mount
    from tonnage.errors import UsageError

    pieces = text.removeprefix("pvc:").split(":")
    modes = {2: True, 3: pieces[-1] != "rw"}
    if (
        len(pieces) not in modes
        or not pieces[1].startswith("/")
        or (len(pieces) == 3 and pieces[2] not in ("ro", "rw"))
    ):
        raise UsageError(f"--mount {text} is not HERE:THERE", "for example: --mount data:/data, or --mount out:/out:rw")
    source = f"pvc:{pieces[0]}" if text.startswith("pvc:") else str(Path(pieces[0]).absolute())
    return Mount(source=source, target=pieces[1], read_only=modes[len(pieces)])


def _variable(text: str) -> tuple[str, str]:
    import os

    from tonnage.errors import UsageError

    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise UsageError(f"--env {text}: {name} is not set here", "give its value: --env NAME=VALUE")
    return name, value if equals else os.environ[name]


# -- what comes out -------------------------------------------------------------------------------------------------------


def _print_manifest(engine: Engine, job: Job, text: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"engine": engine.name, "name": job.name, "manifest": text}))
    else:
        print(text, end="" if text.endswith("\n") else "\n")


def _report(deployment: Deployment, engine: Engine, wait: bool, timeout: float | None, as_json: bool) -> int:
    from tonnage.cli.deployments import comparison, describe, ending, tell_server

    if not as_json:
        print(deployment.id, flush=True)  # at once: whoever waits may be ended first
    if not wait and not as_json:
        return 0
    status = _wait(deployment, engine, timeout) if wait else engine.state(deployment.job_id)
    if wait:
        deployment = tell_server(deployment, status, engine)
    if as_json:
        print(json.dumps(describe(deployment, status)))
    if wait and (sentence := ending(deployment, status)):
        print(f"{deployment.id}: {sentence}", file=sys.stderr)
    if sentence := comparison(deployment):
        print(f"{deployment.id}: {sentence}", file=sys.stderr)
    if not wait or not status.state.is_over:
        return 0
    return status.exit_code if status.exit_code is not None else 0 if status.state == "succeeded" else 1


def _wait(deployment: Deployment, engine: Engine, timeout: float | None) -> JobStatus:
    from tonnage.cli.output import progress
    from tonnage.engines.deploying import wait

    try:
        with progress() as say:
            return wait(
                deployment,
                engine,
                seconds=timeout,
                say=lambda status: say(f"{deployment.id} is {status.state} {status.reason}"),
            )
    except KeyboardInterrupt:
        print(f"{deployment.id} goes on; tonnage stop {deployment.id} ends it", file=sys.stderr)
        raise
