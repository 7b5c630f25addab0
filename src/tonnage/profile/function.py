"""Runs `module:function`, which gives a model and its inputs, for as long as the profile wants more steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tonnage.program.virtual_gpu import run


def run_function(request: dict[str, Any], wants_more: Callable[[], bool]) -> None:
    """On the GPU if there is one. As for an estimate: with an optimizer, a loss or a model in training it trains."""
    function = run.load_function(request["target"], request["function"])
    model, inputs, extras = run.parts_of(function(), request)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device) if isinstance(model, nn.Module) else model
    inputs = run.moved(inputs, device)
    optimizer, loss = extras.get("optimizer"), extras.get("loss")
    if isinstance(optimizer, type) or inspect.isfunction(optimizer):
        optimizer = optimizer(model.parameters())
    trains = optimizer is not None or loss is not None or (isinstance(model, nn.Module) and model.training)
    if trains and optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters())
    while wants_more():
        if trains:
            run.train_once(model, inputs, loss, optimizer)
        else:
            with torch.no_grad():
                run.call_model(model, inputs)
