"""An instance: a process of its own with one model, which runs what the server puts into its arena.

A nursery starts it. It ends when the server's end of the socket is closed.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.errors import TonnageError, UsageError
from tonnage.serve.arena import SMALL_TURNS, Arena, aligned, roomy
from tonnage.serve.datatypes import BF16, BYTES, as_array, as_bytes, datatype_of
from tonnage.serve.deriving import completed
from tonnage.serve.runtimes import Arrays, LoadOrder, Runtime, load_runtime
from tonnage.serve.warming import example_inputs
from tonnage.serve.wire import DONE, FAILED, INPUTS, LOAD, OUTPUTS, READY, RUN, Channel, Placed

_WARM_RUNS = 3
_MOST_WORDS = 4000


class Instance:
    """Reads orders until there are no more."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inputs: Arena | None = None
        self._outputs: Arena | None = None
        self._runtime: Runtime | None = None
        self._halves: set[str] = set()
        self._used = 0  # bytes of the outputs' arena, in the turn that runs
        self._small_turns = 0  # in a row, for which that arena is much too large

    def serve(self) -> None:
        while (received := self._channel.receive()) is not None:
            message, descriptor = received
            if message[0] == RUN:
                self._channel.send((DONE, message[1], self._turns(message[2])))
            elif message[0] == INPUTS:
                if self._inputs is not None:
                    self._inputs.close()
                self._inputs = Arena(descriptor, message[1])
                os.close(descriptor)
            elif message[0] == LOAD:
                self._load(pickle.loads(message[1]))  # from the server that started this process

    def _load(self, order: LoadOrder) -> None:
        try:
            runtime = self._runtime = load_runtime(order)
            configuration = completed(order.configuration, runtime)
            self._halves = {spec.name for spec in runtime.outputs if spec.datatype == BF16}
            with suppress(UsageError):  # zeros may be nothing that this model takes
                for example in example_inputs(configuration):
                    for _ in range(_WARM_RUNS):
                        runtime.run(dict(example), ())
        except TonnageError as error:
            self._channel.send((FAILED, error.message, error.hint))
        except Exception as error:
            self._channel.send((FAILED, f"{type(error).__name__}: {_words(error)}", ""))
        else:
            self._channel.send((READY, pickle.dumps(configuration), getattr(runtime, "note", "")))

    def _turns(self, runs: list[tuple[list[Placed], tuple[str, ...]]]) -> list[tuple[Any, ...]]:
        """One after the other; their outputs lie behind each other."""
        self._used = 0
        done = [self._turn(placed, wanted) for placed, wanted in runs]
        is_small = self._outputs is not None and self._outputs.is_wasteful_for(self._used)
        self._small_turns = self._small_turns + 1 if is_small else 0
        return done

    def _turn(self, placed: list[Placed], wanted: tuple[str, ...]) -> tuple[Any, ...]:
        """One run: where its outputs are and the nanoseconds of its three parts; else what went wrong, and is it the
        client's fault?"""
        assert self._runtime is not None
        began = time.perf_counter_ns()
        try:
            inputs = self._arrays(placed)
            ready = time.perf_counter_ns()
            made = self._runtime.run(inputs, wanted)
            computed = time.perf_counter_ns()
            outputs = self._put(made)
        except TonnageError as error:
            return (error.message, isinstance(error, UsageError))
        except Exception as error:
            return (f"{type(error).__name__}: {_words(error)}", False)
        return outputs, ready - began, computed - ready, time.perf_counter_ns() - computed

    def _arrays(self, placed: list[Placed]) -> Arrays:
        assert self._inputs is not None
        view = self._inputs.view
        return {
            name: as_array(datatype, shape, view[offset : offset + size])
            for name, datatype, shape, offset, size in placed
        }

    def _put(self, made: Arrays) -> list[Placed]:
        placed: list[Placed] = []
        parts: list[memoryview] = []
        end = self._used
        for name, array in made.items():
            datatype = BF16 if name in self._halves else datatype_of(array.dtype)
            data = _view(array, datatype)
            placed.append((name, datatype, tuple(map(int, array.shape)), end, len(data)))
            parts.append(data)
            end = aligned(end + len(data))
        arena = self._reserved(end)
        for (_, _, _, start, size), data in zip(placed, parts, strict=True):
            arena.view[start : start + size] = data
        self._used = end
        return placed

    def _reserved(self, size: int) -> Arena:
        """The arena of outputs, with room for so much; what is in it already stays."""
        if self._outputs is None or self._outputs.size < size or self._small_turns >= SMALL_TURNS:
            self._small_turns = 0
            arena, descriptor = Arena.make(roomy(size))
            if self._outputs is not None:
                arena.view[: self._used] = self._outputs.view[: self._used]
                self._outputs.close()
            self._channel.send((OUTPUTS, arena.size), descriptor)
            os.close(descriptor)
            self._outputs = arena
        return self._outputs


def _view(array: npt.NDArray[Any], datatype: str) -> memoryview:
    """Without a copy, where that is possible."""
    if datatype in (BF16, BYTES) or not array.flags.c_contiguous or not array.ndim or not array.size:
        return memoryview(as_bytes(array, datatype))
    return array.view(np.uint8).data.cast("B")


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:_MOST_WORDS]


def serve(descriptor: int) -> None:
    """Until the server is gone; `descriptor` is this process's end of their socket."""
    with suppress(ConnectionError):
        Instance(Channel(socket.socket(fileno=descriptor))).serve()
