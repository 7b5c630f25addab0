"""How to run a network fastest on a processor: a few ways are tried for the sizes that are asked for, and whichever is
right and fastest is kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeAlias

import torch
from torch import Tensor

from tonnage.errors import TonnageError
from tonnage.program.caffe.apart import apart
from tonnage.program.caffe.execution import CaffeModule
from tonnage.program.caffe.folding import Weights, folded_network, folded_weights
from tonnage.program.caffe.front import front_of, is_by_rows, why_no_batches
from tonnage.program.caffe.layer import Shape, shown
from tonnage.program.caffe.network import Network, reshaped
from tonnage.program.caffe.processor import Run, by_onnxruntime, by_openvino, compiled, seconds_of
from tonnage.program.caffe.winograd import with_winograd

log = logging.getLogger("tonnage.caffe")
Shapes: TypeAlias = tuple[Shape, ...]
Maker: TypeAlias = Callable[[], Run]
TOLERANCE = 1e-4  # of the largest number of an output, or of 1
LAYERS, GRAPHS, ONNX, PARTS = "layers", "oneDNN graphs", "onnxruntime", "in parts"
WINOGRAD, OPENVINO = "oneDNN graphs and Winograd", "OpenVINO"
ALL = (LAYERS, GRAPHS, WINOGRAD, ONNX, OPENVINO)
_WITH_COPIES = (GRAPHS, WINOGRAD, OPENVINO)  # of all weights, for each size
_TRIES = 4
_SPINNING_SECONDS = 0.1  # in which threads of one way still keep others from the processor
_MOST_SECONDS = 5.0  # of trying for one size
_MOST_BATCH_SECONDS = 20.0  # of preparing all batches
_MOST_COPIED_BYTES = 64 << 20  # of weights that each size may have a copy of
_MOST_SHAPES = 16  # that are prepared
_OFTEN = 3  # a shape that comes so often is prepared while clients are served


class Ways:
    """Sizes are prepared beforehand, or beside the work when they have come a few times. Batches of sizes that were not
    prepared run in parts that were."""

    def __init__(self, network: Network, weights: Weights) -> None:
        self._network, front = network, front_of(network)
        self.device = torch.device("cpu")
        self.makes: Sequence[int] = tuple(front.outputs.values())
        self._weights = folded_weights(front, weights)
        self._has_batches = not why_no_batches(network)
        self._is_by_rows = self._has_batches and is_by_rows(network)
        self._runs: dict[Shapes, Run] = {}
        self._sessions: dict[Shapes, Run] = {}  # for batches of any size, by what is behind the batch
        self._seen: dict[Shapes, int] = {}
        self._preparing: threading.Thread | None = None
        self.chosen: dict[Shapes, str] = {}

    def find(self, shapes: Shapes) -> Run | None:
        run = self._runs.get(shapes) or self._in_parts(shapes)
        if run is None and self._runs:
            self._count(shapes)
        return run

    # -- preparing ----------------------------------------------------------------------------------------------------

    def prepare(self, shapes: Shapes, kinds: Sequence[str] = ALL) -> str:
        """Choose the way for inputs of these shapes; raises `UsageError` or `InvalidFile` where they cannot be."""
        wanted = dict(zip(self._network.inputs, shapes, strict=True))
        network = folded_network(front_of(reshaped(self._network, wanted)))
        examples = tuple(torch.rand(shape) for shape in shapes)
        makers = self._makers(network, shapes, examples)
        name, run, seconds = fastest({kind: makers[kind] for kind in kinds}, examples)
        self._runs[shapes], self.chosen[shapes] = run, name
        log.debug("%s: %s for %s, %.3g ms", network.file, name, ", ".join(map(shown, shapes)), seconds * 1e3)
        return name

    def prepare_batches(self, most: int) -> None:
        """Batches up to so many rows, as far as that does not take too long: 1, 2, 4 and so on."""
        began = time.perf_counter()
        rows = 1
        kinds: tuple[str, ...] = ALL
        while rows <= most and time.perf_counter() - began < _MOST_BATCH_SECONDS:
            shapes = tuple((rows, *shape[1:]) for shape in self._network.input_shapes.values())
            chosen = self.prepare(shapes, kinds)
            if chosen != PARTS:
                kinds = (PARTS, chosen) if chosen not in _WITH_COPIES or self._are_small else (PARTS,)
            rows *= 2

    @property
    def _are_small(self) -> bool:
        return sum(each.nbytes for arrays in self._weights.values() for each in arrays) <= _MOST_COPIED_BYTES

    def _makers(self, network: Network, shapes: Shapes, examples: tuple[Tensor, ...]) -> Mapping[str, Maker]:
        weights = self._weights
        return {
            LAYERS: lambda: CaffeModule(network, weights).eval(),
            GRAPHS: lambda: compiled(CaffeModule(apart(network), weights).eval(), examples),
            WINOGRAD: lambda: compiled(with_winograd(CaffeModule(apart(network), weights).eval(), examples), examples),
            ONNX: lambda: self._session(network, shapes),
            OPENVINO: lambda: by_openvino(network, weights),
            PARTS: lambda: self._halves(shapes),
        }

    def _session(self, network: Network, shapes: Shapes) -> Run:
        if not self._is_by_rows:
            return by_onnxruntime(network, self._weights, free_batch=False)
        rest = tuple(shape[1:] for shape in shapes)
        if rest not in self._sessions:
            self._sessions[rest] = by_onnxruntime(network, self._weights, free_batch=True)
        return self._sessions[rest]

    # -- batches and other sizes --------------------------------------------------------------------------------------

    def _halves(self, shapes: Shapes) -> Run:
        half = self._runs[tuple((shape[0] // 2, *shape[1:]) for shape in shapes)]
        return _by_parts([half, half], [shapes[0][0] // 2] * 2)

    def _in_parts(self, shapes: Shapes) -> Run | None:
        """Rows of a batch that was not prepared, in parts that were."""
        if not self._has_batches or not self._runs or len({shape[:1] for shape in shapes}) != 1:
            return None
        parts: list[int] = []
        runs: list[Run] = []
        rows = shapes[0][0]
        while rows:
            part, run = self._largest(rows, shapes)
            if run is None:
                return None
            parts.append(part)
            runs.append(run)
            rows -= part
        return _by_parts(runs, parts)

    def _largest(self, rows: int, shapes: Shapes) -> tuple[int, Run | None]:
        """The largest prepared batch of at most so many rows."""
        part = 1 << (rows.bit_length() - 1)
        while part:
            run = self._runs.get(tuple((part, *shape[1:]) for shape in shapes))
            if run is not None:
                return part, run
            part //= 2
        return 0, None

    def _count(self, shapes: Shapes) -> None:
        if len(self._seen) < 1000:  # a client may send any
            self._seen[shapes] = self._seen.get(shapes, 0) + 1
        idle = self._preparing is None or not self._preparing.is_alive()
        if self._seen.get(shapes, 0) >= _OFTEN and idle and len(self._runs) < _MOST_SHAPES:
            self._preparing = threading.Thread(target=self._prepare_beside, args=(shapes,), daemon=True)
            self._preparing.start()

    def wait(self) -> None:
        """Until nothing is being prepared."""
        if self._preparing is not None:
            self._preparing.join()

    def _prepare_beside(self, shapes: Shapes) -> None:
        """Without TorchScript, whose settings are those of the whole process."""
        self._seen[shapes] = -(1 << 30)
        try:
            self.prepare(shapes, (LAYERS, ONNX, OPENVINO))
        except TonnageError as error:
            log.debug("inputs of %s are not prepared: %s", ", ".join(map(shown, shapes)), error.message)


def fastest(makers: Mapping[str, Maker], examples: tuple[Tensor, ...]) -> tuple[str, Run, float]:
    """The fastest of those that can be made and agree with the first: its name, itself, and its seconds."""
    with torch.no_grad():
        runs = _that_agree(makers, examples)
        best = dict.fromkeys(runs, inf)
        deadline = time.perf_counter() + _MOST_SECONDS
        for _ in range(_TRIES):
            for name, run in runs.items():
                best[name] = min(best[name], _seconds_in_a_row(run, examples))
            if time.perf_counter() > deadline:
                break
    name = min(best, key=best.__getitem__)
    return name, runs[name], best[name]


def _seconds_in_a_row(run: Run, examples: tuple[Tensor, ...]) -> float:
    """The shortest of so many runs that the last of them had the processor for itself."""
    ends, best = time.perf_counter() + _SPINNING_SECONDS, inf
    for _ in range(2):
        best = min(best, seconds_of(run, examples))
    while time.perf_counter() < ends:
        best = min(best, seconds_of(run, examples))
    return best


def _that_agree(makers: Mapping[str, Maker], examples: tuple[Tensor, ...]) -> dict[str, Run]:
    wanted: tuple[Tensor, ...] | None = None
    runs: dict[str, Run] = {}
    for name, make in makers.items():
        try:
            run = make()
            made = run(*examples)
        except (TonnageError, RuntimeError) as error:
            log.debug("%s is not possible: %s", name, error)
            continue
        wanted = made if wanted is None else wanted
        if agree(made, wanted):
            runs[name] = run
        else:
            log.warning("%s gives other results than layer by layer and is not used", name)
    return runs


def agree(made: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    """Within the tolerance, everywhere?"""
    return all(
        a.shape == b.shape and bool(((a - b).abs() <= TOLERANCE * b.abs().amax().clamp(min=1)).all())
        for a, b in zip(made, wanted, strict=True)
    )


def _by_parts(runs: Sequence[Run], parts: Sequence[int]) -> Run:
    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        split = zip(*(torch.split(each, list(parts)) for each in inputs), strict=True)
        made = [each(*rows) for each, rows in zip(runs, split, strict=True)]
        return tuple(torch.cat(values) for values in zip(*made, strict=True))

    return run
