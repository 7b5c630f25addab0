"""Runs single layers on the device of this machine and says which kernels they launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tonnage.benchmark.failures import is_out_of_memory, short_reason
from tonnage.benchmark.layers.layer import Layer
from tonnage.benchmark.layers.scenes import build
from tonnage.benchmark.observe import PREPARING, Observation, Observer, observe
from tonnage.benchmark.results import Measured, blank, unsuccessful
from tonnage.store.rows import Status

RUNS = 3
WARM_UP_RUNS = 2  # libraries load kernels and choose algorithms
# More than the last-level cache of any GPU in the catalogue: writing it leaves nothing else there.
FLUSH_BYTES = 256 << 20


class _Span(NamedTuple):
    """The calls that belong to one layer, or why there are none."""

    layer: Layer
    calls: range
    status: Status = Status.OK
    message: str = ""


class _Stage:
    """Tells the observer the phase, and empties the caches."""

    def __init__(self, device: str) -> None:
        self.observer: Observer | None = None
        self._junk = torch.zeros(FLUSH_BYTES if device == "cuda" else 1, dtype=torch.int8, device=device)

    def phase(self, name: str) -> None:
        if self.observer is not None:
            self.observer.phase = name

    def forget(self) -> None:
        self._junk.zero_()


def measure_layers(
    layers: Sequence[Layer], *, device: str, campaign: str = "", begun: Callable[[str | None], None] = lambda key: None
) -> Iterator[Measured]:
    """Each layer by itself, with cold caches but for what has just arrived; one profile for all of them.

    `begun` is told the key of each layer before it runs, and None when all have. A layer that the device cannot do is a
    result; a device that can do nothing any more is an error.
    """
    stage = _Stage(device)
    spans: list[_Span] = []

    def run(observer: Observer) -> None:
        for layer in layers:
            begun(layer.key)
            spans.append(_run_layer(layer, device, stage, observer))
        begun(None)

    seen = observe(run, device)
    for span in spans:
        yield _rows(span, campaign, seen)


def _run_layer(layer: Layer, device: str, stage: _Stage, observer: Observer) -> _Span:
    first = len(observer.calls)
    try:
        _run_scene(layer, device, stage, observer)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        status = Status.OUT_OF_MEMORY if is_out_of_memory(error) else Status.FAILED
        span = _Span(layer, range(0), status, short_reason(error))
    else:
        span = _Span(layer, range(first, len(observer.calls)))
    finally:
        stage.observer = None
        observer.phase = PREPARING
        torch.backends.cuda.matmul.allow_tf32 = False  # torch's default, which layers may have changed
    _clean_up(device, has_failed=span.status is not Status.OK)
    return span


def _run_scene(layer: Layer, device: str, stage: _Stage, observer: Observer) -> None:
    with _disable_current_modes():
        scene = build(layer, device)
        for _ in range(WARM_UP_RUNS):
            scene(stage)
    stage.observer = observer
    for _ in range(RUNS):
        scene(stage)


def _clean_up(device: str, has_failed: bool) -> None:
    """Errors come late on a GPU: waiting here raises them where they belong, or shows that all is well."""
    if device != "cuda":
        return
    torch.cuda.synchronize()
    if has_failed:
        gc.collect()
        torch.cuda.empty_cache()


def _rows(span: _Span, campaign: str, seen: Observation) -> Measured:
    if span.status is not Status.OK:
        return unsuccessful(span.layer, campaign, span.status, span.message)
    measurement = replace(blank(span.layer, campaign), steps=RUNS, repetitions=1)
    return Measured(measurement, seen.kernels(span.calls), seen.hosts(span.calls))
