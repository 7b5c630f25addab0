"""What is in no forward or backward pass: steps of optimizers, copies between host and device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, optim

from tonnage.benchmark.layers.scenes.bench import Bench, Scene, Stage, forward_only

OPTIMIZERS: dict[str, Callable[[list[Tensor]], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "adam": lambda p: optim.Adam(p),
    "adamw": lambda p: optim.AdamW(p),
    "fused_adamw": lambda p: optim.AdamW(p, fused=True),
    "adamw_loop": lambda p: optim.AdamW(p, foreach=False),
    "rmsprop": lambda p: optim.RMSprop(p),
    "adagrad": lambda p: optim.Adagrad(p),
    "clip": lambda p: optim.SGD(p, 0.1),
    "adamax": lambda p: optim.Adamax(p),
    "nadam": lambda p: optim.NAdam(p),
}


def optimizer(bench: Bench, rows: int, columns: int, function: str) -> Scene:
    """`rows` tensors, of which every second one is small as biases are."""
    parameters = [bench.tensor(columns if number % 2 == 0 else max(columns // 256, 1)) for number in range(rows)]
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    chosen = OPTIMIZERS[function](parameters)

    def run(stage: Stage) -> None:
        stage.phase("prepare")
        stage.forget()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        stage.phase("optimizer")
        if function == "clip":
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        chosen.step()
        stage.phase("prepare")

    return run


def copy(bench: Bench, rows: int, direction: str, pinned: bool) -> Scene:
    host = torch.randn(rows, pin_memory=pinned and bench.device != "cpu")
    there = bench.tensor(rows, grad=False)
    target, source = (there, host) if direction == "h2d" else (host, there)
    return forward_only(lambda: target.copy_(source, non_blocking=pinned))


MAKERS = (optimizer, copy)
