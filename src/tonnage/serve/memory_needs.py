"""What one instance of a model needs: weights and activations at the largest batch, by this package's own estimate.

    python -m tonnage.serve.memory_needs < QUESTION

A process of its own, which ends with its answer, so that the server never imports what it takes to follow a model.
Where a model cannot be followed the answer is its weights alone: that is less than it needs, and never too much.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.errors import TonnageError
from tonnage.serve.configuration import ModelConfiguration
from tonnage.serve.model_traces import trace_model

# Resident bytes of an instance without a model, by who runs it.
_PROCESS_BYTES = {"onnxruntime": 56 << 20, "pytorch": 256 << 20, "caffe": 256 << 20}

# Memory that is touched for each byte of tensors: onnxruntime's arena grows in powers of two, and both rearrange what
# convolutions read. Measured with two convolutions of 64 channels at a batch of 32: 2.05 and 1.55.
_SHARE = {"onnxruntime": 2.0, "pytorch": 1.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`gpu` is a name of the catalogue; "" for the processor."""

    path: str
    configuration: ModelConfiguration
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Of one instance. `rows` is the batch that was estimated; 0 where only the weights are known."""

    total_bytes: int
    weights_bytes: int
    rows: int = 0
    problem: str = ""  # why only the weights are known


def weights_on_disk(path: Path) -> int:
    """The least that a model can need, without looking into its files."""
    files = [path, path.with_suffix(".caffemodel")] if path.suffix == ".prototxt" else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def needs_of(question: Question) -> Needs:
    """Never raises for what a file says: whoever loads it will tell better what is wrong with it."""
    weights = weights_on_disk(Path(question.path))
    base = 0 if question.gpu else _PROCESS_BYTES.get(question.configuration.backend, 0)
    try:
        trace, rows = trace_model(Path(question.path), question.configuration, on_gpu=bool(question.gpu))
    except TonnageError as error:
        return Needs(total_bytes=weights + base, weights_bytes=weights, problem=error.message)
    except Exception as error:  # a damaged file may break what reads it in any way
        return Needs(total_bytes=weights + base, weights_bytes=weights, problem=f"{type(error).__name__}: {error}")
    kept = _parameter_bytes(trace) or weights
    total = _on_gpu(trace, question.gpu) if question.gpu else _on_processor(trace, question.configuration.backend, kept)
    return Needs(total_bytes=max(total, weights), weights_bytes=kept, rows=rows)


# -- bytes ----------------------------------------------------------------------------------------------------------------


def _on_gpu(trace: Any, gpu: str) -> int:
    """With the context and what the allocator reserves."""
    from tonnage.estimate.estimator import Estimator
    from tonnage.hardware import find_gpu

    return int(Estimator(trace).estimate(find_gpu(gpu)).device_bytes.value)


def _on_processor(trace: Any, backend: str, weights: int) -> int:
    """With the process, and with what a library takes beside the tensors."""
    tensors = max(_peak_bytes(trace) - weights, 0)
    return weights + round(_SHARE.get(backend, 1.0) * tensors) + _PROCESS_BYTES.get(backend, 0)


def _peak_bytes(trace: Any) -> int:
    """The most that is in use at once."""
    from tonnage.program.trace import Event

    sign = np.select([trace.event_kind == Event.ALLOCATE, trace.event_kind == Event.FREE], [1, -1], 0)
    blocks = np.where(sign != 0, trace.event_subject, 0)
    sizes = trace.block_bytes[blocks] if len(trace.block_bytes) else np.zeros(len(blocks), np.int64)
    return int(np.cumsum(sign * sizes).max(initial=0))


def _parameter_bytes(trace: Any) -> int:
    from tonnage.program.trace import Category

    return int(trace.block_bytes[trace.block_category == Category.PARAMETERS].sum())


def main() -> None:
    os.nice(10)  # requests that are being answered go first
    warnings.simplefilter("ignore")
    answer = needs_of(pickle.loads(sys.stdin.buffer.read()))  # from the server that started this process
    print(json.dumps(asdict(answer)))


if __name__ == "__main__":
    main()
