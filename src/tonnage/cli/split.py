"""`tonnage split`: one network over several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.cli import split_options as options

if TYPE_CHECKING:
    from tonnage.hardware import Cluster
    from tonnage.split.statistics import Statistics
    from tonnage.stages.adapting import Round
    from tonnage.stages.carrying_out import Where
    from tonnage.stages.splitting import Split, TrainingOptions


def split_command(
    program: options.Program = "",
    network: options.Network = "",
    cluster: options.Cluster = None,
    target: options.Target = None,
    front: options.Front = "",
    contiguous: options.Contiguous = None,
    replicas: options.Replicas = False,
    train: options.Train = False,
    micro_batches: options.MicroBatches = 8,
    optimizer: options.Optimizer = "sgd",
    recompute: options.Recompute = False,
    batch: options.Batch = None,
    statistics: options.Statistics = None,
    token_file: options.TokenFile = None,
    replan: options.Replan = None,
    pessimistic: options.Pessimistic = False,
    run: options.Run = False,
    engine: options.Engine = "",
    image: options.Image = "",
    option: options.Option = None,
    control: options.Control = "127.0.0.1",
    transport: options.Transport = "sockets",
    samples: options.Samples = 32,
    rounds: options.Rounds = 1,
    emulate: options.Emulate = False,
    save_statistics: options.SaveStatistics = None,
    record: options.Record = False,
    save_network: options.SaveNetwork = None,
    html: options.Html = None,
    output: options.Output = None,
    seconds: options.Seconds = 60.0,
    as_json: options.AsJson = False,
    debug: options.Debug = False,  # noqa: ARG001  (see main.py)
) -> None:
    """Split a network into subnetworks for several devices.

    Each distribution comes with its metrics and a bound that no other one beats; with --front, all those between which
    one can choose.
    """
    from tonnage.cli.estimate import check_folder
    from tonnage.cli.output import progress
    from tonnage.cli.split_run import keep, read_assignment, run_rounds, write_page
    from tonnage.hardware import read_cluster
    from tonnage.split.sources.network_file import write_network
    from tonnage.stages.splitting import split

    for file in (save_statistics, save_network, html, output):
        check_folder(file)
    training = _training(train, micro_batches, optimizer, recompute)
    where = _where(run, engine, image, option or [], control, transport, emulate, rounds)
    targets = _targets(target, front, rounds)
    machines = None if cluster is None else read_cluster(cluster)
    last = None if replan is None else read_assignment(replan)
    with progress() as say:
        known = _statistics(statistics or [], machines, token_file, say)
        found = split(
            _named(program, network),
            cluster=machines,
            targets=targets,
            axes=[each.strip() for each in front.split(",")] if front else (),
            contiguous=contiguous,
            training=training,
            batch=batch,
            statistics=known,
            pessimistic=pessimistic,
            last=last,
            replicas=replicas,
            seconds=seconds,
            progress=say,
        )
        if save_network is not None and found.pool is not None:
            write_network(found.pool.network, save_network)
    running: Iterable[Round] = ()
    if where is not None:
        running = run_rounds(
            found, machines, where, samples=samples, training=training, rounds=rounds, statistics=known,
            pessimistic=pessimistic,
        )  # fmt: skip
    done = _followed(found, running, as_json, rounds)
    if done:
        keep(done, save_statistics, record)
    if html is not None:
        write_page(found, done[0].outcome if done else None, html)
    _write(found, done, as_json, output, of_front=bool(front))


def _followed(found: Split, running: Iterable[Round], as_json: bool, rounds: int) -> list[Round]:
    """What is found, and each round as soon as it is done."""
    from tonnage.cli.split_table import print_outcome, print_round, print_split

    done = []
    if not as_json:
        print_split(found)
    for each in running:
        done.append(each)
        if rounds > 1 and not as_json:
            print_round(len(done), each)
    if done and done[-1].outcome is not None and not as_json:
        print_outcome(done[-1].outcome)
    return done


def _where(
    run: bool, engine: str, image: str, option: list[str], control: str, transport: str, emulate: bool, rounds: int
) -> Where | None:
    """None where nothing runs; words about a run that is not wanted are refused."""
    from tonnage.errors import UsageError
    from tonnage.stages.carrying_out import Where

    if not run:
        about_running = {
            "--engine": engine, "--image": image, "--option": option, "--emulate": emulate, "--rounds": rounds > 1,
        }  # fmt: skip
        for words, given in about_running.items():
            if given:
                raise UsageError(f"{words} is about running", "add --run")
        return None
    if not engine:
        return Where(emulates=emulate, transport=transport, control_host=control)
    from tonnage.engines.jobs import check_image
    from tonnage.engines.options import parse_options
    from tonnage.engines.registry import find_engine

    chosen = find_engine(engine)
    check_image(engine, image)
    return Where(
        engine=chosen, options=parse_options(chosen.Options, option), image=image, control_host=control,
        emulates=emulate, transport=transport,
    )  # fmt: skip


def _named(program: str, network: str) -> str:
    from tonnage.errors import UsageError

    if bool(program) == bool(network):
        raise UsageError(
            "name one network to split", "for example: tonnage split model.py:build --cluster cluster.yaml"
        )
    return program or network


def _targets(given: list[str] | None, front: str, rounds: int) -> list[str]:
    from tonnage.errors import UsageError

    found = given or [front.split(",")[0].strip() or "throughput"]
    if rounds > 1 and found[0] != "throughput":
        raise UsageError("a re-plan is for throughput", f"leave out --rounds, or {found[0]}")
    return found


def _training(train: bool, micro_batches: int, optimizer: str, recompute: bool) -> TrainingOptions | None:
    from tonnage.errors import UsageError
    from tonnage.stages.splitting import TrainingOptions

    if not train:
        if recompute:
            raise UsageError("--recompute is about training", "add --train")
        return None
    return TrainingOptions(micro_batches=micro_batches, optimizer=optimizer, recompute=recompute)


def _statistics(
    sources: list[str], cluster: Cluster | None, token_file: Path | None, say: Callable[[str], None]
) -> Statistics | None:
    from tonnage.errors import UsageError
    from tonnage.stages.statistics_sources import AGENTS, read_sources

    if token_file is not None and AGENTS not in sources:
        raise UsageError("--token-file is about agents", "add --statistics agents")
    if not sources:
        return None
    return read_sources(sources, cluster, token_file=token_file, say=say, note=_note)


def _note(sentence: str) -> None:
    import sys

    print(f"note: {sentence}", file=sys.stderr)


def _write(found: Split, done: list[Round], as_json: bool, output: Path | None, *, of_front: bool) -> None:
    """The document."""
    import json

    record = _record(found, of_front)
    if len(done) > 1:
        record["rounds"] = [each.as_dict() for each in done]
    elif done and done[0].outcome is not None:
        record["run"] = done[0].outcome.as_dict()
    text = json.dumps(record)
    if output is not None:
        output.write_text(text + "\n")
    if as_json:
        print(text)


def _record(found: Split, of_front: bool) -> dict[str, Any]:
    if found.replanned is not None:
        return found.replanned.as_dict() | {"seconds": found.seconds}
    chosen = found.front if of_front else found.distributions
    if len(chosen) == 1 and not of_front:
        return chosen[0].as_dict() | {"seconds": found.seconds}
    return {"distributions": [each.as_dict() for each in chosen], "seconds": found.seconds}
