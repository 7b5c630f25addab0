"""`tonnage split`: one network over several devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.cli import split_options as options

if TYPE_CHECKING:
    from tonnage.split.statistics import Statistics
    from tonnage.stages.carrying_out import Outcome, Where
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
    replan: options.Replan = None,
    pessimistic: options.Pessimistic = False,
    run: options.Run = False,
    engine: options.Engine = "",
    image: options.Image = "",
    option: options.Option = None,
    control: options.Control = "127.0.0.1",
    transport: options.Transport = "sockets",
    samples: options.Samples = 32,
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
    from tonnage.cli.split_run import keep, read_assignment, run_first, write_page
    from tonnage.hardware import read_cluster
    from tonnage.split.sources.network_file import write_network
    from tonnage.stages.splitting import split

    for file in (save_statistics, save_network, html, output):
        check_folder(file)
    training = _training(train, micro_batches, optimizer, recompute)
    where = _where(run, engine, image, option or [], control, transport, emulate)
    machines = None if cluster is None else read_cluster(cluster)
    last = None if replan is None else read_assignment(replan)
    with progress() as say:
        found = split(
            _named(program, network),
            cluster=machines,
            targets=target or _first(front),
            axes=[each.strip() for each in front.split(",")] if front else (),
            contiguous=contiguous,
            training=training,
            batch=batch,
            statistics=_statistics(statistics),
            pessimistic=pessimistic,
            last=last,
            replicas=replicas,
            seconds=seconds,
            progress=say,
        )
        if save_network is not None and found.pool is not None:
            write_network(found.pool.network, save_network)
        outcome = None
        if where is not None:
            outcome = run_first(found, machines, where, samples=samples, training=training, progress=say)
    if outcome is not None:
        keep(outcome, found.distributions[0], save_statistics, record)
    if html is not None:
        write_page(found, outcome, html)
    _print(found, outcome, as_json, output, of_front=bool(front))


def _where(
    run: bool, engine: str, image: str, option: list[str], control: str, transport: str, emulate: bool
) -> Where | None:
    """None where nothing runs; words about a run that is not wanted are refused."""
    from tonnage.errors import UsageError
    from tonnage.stages.carrying_out import Where

    if not run:
        for given, words in ((engine, "--engine"), (image, "--image"), (option, "--option"), (emulate, "--emulate")):
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


def _first(front: str) -> list[str]:
    return [front.split(",")[0].strip()] if front else ["throughput"]


def _training(train: bool, micro_batches: int, optimizer: str, recompute: bool) -> TrainingOptions | None:
    from tonnage.errors import UsageError
    from tonnage.stages.splitting import TrainingOptions

    if not train:
        if recompute:
            raise UsageError("--recompute is about training", "add --train")
        return None
    return TrainingOptions(micro_batches=micro_batches, optimizer=optimizer, recompute=recompute)


def _statistics(path: Path | None) -> Statistics | None:
    from tonnage.split.statistics_file import read_statistics

    return None if path is None else read_statistics(path)


def _print(found: Split, outcome: Outcome | None, as_json: bool, output: Path | None, *, of_front: bool) -> None:
    import json

    from tonnage.cli.split_table import print_outcome, print_split

    text = json.dumps(_record(found, of_front) | ({"run": outcome.as_dict()} if outcome is not None else {}))
    if output is not None:
        output.write_text(text + "\n")
    if as_json:
        print(text)
        return
    print_split(found)
    if outcome is not None:
        print_outcome(outcome)


def _record(found: Split, of_front: bool) -> dict[str, Any]:
    if found.replanned is not None:
        return found.replanned.as_dict() | {"seconds": found.seconds}
    chosen = found.front if of_front else found.distributions
    if len(chosen) == 1 and not of_front:
        return chosen[0].as_dict() | {"seconds": found.seconds}
    return {"distributions": [each.as_dict() for each in chosen], "seconds": found.seconds}
