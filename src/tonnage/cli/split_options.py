"""The options of `tonnage split`, each with its help."""

from pathlib import Path
from typing import Annotated

import typer

Program = Annotated[
    str, typer.Argument(help="What to split: model.py:build, an ONNX file, a prototxt, a profile, or a network's file.")
]
Network = Annotated[str, typer.Option("--network", "-n", help="The same, for files.")]
Cluster = Annotated[
    Path | None,
    typer.Option("--cluster", "-c", help="The machines, as cluster.yaml describes them; a file may state its own."),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", help="throughput, latency, energy, memory, nodes or step; may be given several times."
    ),
]
Front = Annotated[str, typer.Option(help="The front over two or three targets: latency,throughput.")]
Contiguous = Annotated[
    bool | None,
    typer.Option(
        "--contiguous/--scattered",
        help="Each subnetwork in one piece, done before the next, or not. On a cluster it is by default; in files that "
        "state their own devices it is not.",
    ),
]
Replicas = Annotated[
    bool, typer.Option("--replicas", help="Stages may be held by several devices that take turns with samples.")
]
Train = Annotated[bool, typer.Option("--train", help="Training: forward, backward and update.")]
MicroBatches = Annotated[int, typer.Option(help="Of one training step.", min=1, max=4096)]
Optimizer = Annotated[str, typer.Option(help="sgd, adam or adamw.")]
Recompute = Annotated[
    bool, typer.Option("--recompute", help="Keep inputs alone and compute the rest again for the backward.")
]
Batch = Annotated[int | None, typer.Option(help="Samples at a time, where the program or file leaves it open.")]
Statistics = Annotated[
    list[str] | None,
    typer.Option(
        "--statistics",
        metavar="SOURCE",
        help="Runtime statistics: a file, an http(s) address, or `agents` to ask those of the nodes now. "
        "May be given several times; the newest counts.",
    ),
]
TokenFile = Annotated[Path | None, typer.Option(help="The token of the agents, for --statistics agents.")]
Replan = Annotated[
    Path | None, typer.Option("--replan", help="The JSON of the last distribution: plan from it, and say what moves.")
]
Pessimistic = Annotated[bool, typer.Option("--pessimistic", help="Count with the worst 5 % of statistics.")]
Run = Annotated[
    bool, typer.Option("--run", help="Run the first distribution for real, and show predicted beside measured.")
]
Engine = Annotated[str, typer.Option("--engine", "-e", help="Where stages run: local, podman, docker, slurm or ray.")]
Image = Annotated[str, typer.Option(help="The image of the workers, where the engine needs one.")]
Option = Annotated[list[str] | None, typer.Option("--option", help="NAME=VALUE, of the engine alone.")]
Control = Annotated[str, typer.Option(help="This machine's address, as workers elsewhere reach it.")]
Transport = Annotated[str, typer.Option(help="sockets, gloo or nccl.")]
Samples = Annotated[int, typer.Option(help="Samples (steps of training) that are measured.", min=1)]
Rounds = Annotated[
    int, typer.Option(help="Run so many times, and plan again in between where it is slower than predicted.", min=1)
]
Emulate = Annotated[
    bool, typer.Option("--emulate", help="Make workers as slow as their nodes, by waiting; for trying things out.")
]
SaveStatistics = Annotated[Path | None, typer.Option(help="Write the speeds that the run observed, for the next plan.")]
Record = Annotated[bool, typer.Option("--record", help="Keep the run in the benchmark database.")]
SaveNetwork = Annotated[Path | None, typer.Option(help="Write the network with its costs, to be split elsewhere.")]
Html = Annotated[
    Path | None, typer.Option(help="Write a page with graph, time-line and front that any browser can show.")
]
Output = Annotated[Path | None, typer.Option(help="Write the JSON document here as well.")]
Seconds = Annotated[float, typer.Option(help="Look for better distributions for so long.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
