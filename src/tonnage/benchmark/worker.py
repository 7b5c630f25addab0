"""The measuring process: `python -m tonnage.benchmark.worker PIPE DEVICE GPU_INDEX`, started by the runner.

It is apart because a GPU, or the libraries that drive it, may take the process that uses them down. It stays for many
orders because loading torch and making a context takes seconds.
"""

from __future__ import annotations

import gc
import os
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from tonnage.benchmark.messages import Begun, Broken, Finished, Order, Ready, Refused
from tonnage.benchmark.results import Measured, unsuccessful
from tonnage.benchmark.workloads.point import Point
from tonnage.errors import MissingDependency, TonnageError
from tonnage.store.rows import Status

if TYPE_CHECKING:
    from tonnage.benchmark.environment import Place


def main(arguments: list[str]) -> int:
    """Announce readiness, then measure what is ordered until the pipe is closed."""
    pipe, device, gpu_index = arguments
    _die_with_parent()
    # What libraries print belongs to nobody's standard output.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # number GPUs as the driver does
    os.environ.setdefault("TEARDOWN_CUPTI", "1")  # a profiler that stays makes later launches slower by a third
    with Connection(int(pipe)) as connection:
        try:
            place = _find_place(device, int(gpu_index))
        except TonnageError as error:
            connection.send(Refused.of(error))
            return error.exit_code
        _warm_up(place.device)
        connection.send(Ready(place.environment))
        return _serve(connection, place)


def _find_place(device: str, gpu_index: int) -> Place:
    try:
        import torch  # noqa: F401 - whether it can be loaded
    except ModuleNotFoundError:
        raise MissingDependency("measuring needs torch", "pip install 'tonnage[torch]'") from None
    import warnings

    from tonnage.benchmark.environment import find_place

    warnings.simplefilter("ignore")  # advice for authors of programs; these are ours
    return find_place(device, gpu_index)


def _warm_up(device: str) -> None:
    """Whatever is loaded at the first step of all shall not count as time of the first point."""
    from tonnage.benchmark.workloads.point import make_point
    from tonnage.benchmark.workloads.step import prepare_step

    prepare_step(make_point("mlp", {"width": 8, "depth": 1, "batch": 1, "optimizer": "adam"}), device)()
    gc.freeze()  # torch's own objects stay anyway; looking through them takes a quarter of a second each time


def _serve(connection: Connection, place: Place) -> int:
    while True:
        try:
            order: Order = connection.recv()
        except EOFError:
            return 0
        try:
            results = _measure(connection, place, order)
        except Exception as error:  # whatever it is: the runner records it and starts a new process
            connection.send(Broken(_reason(error)))
            return 1
        connection.send(Finished(results))


def _measure(connection: Connection, place: Place, order: Order) -> tuple[Measured, ...]:
    first = order.jobs[0]
    if isinstance(first, Point):
        connection.send(Begun(first.key))
        return (_measure_point(first, place, order),)
    from tonnage.benchmark.layers import Layer
    from tonnage.benchmark.measure_layers import measure_layers

    layers = [job for job in order.jobs if isinstance(job, Layer)]
    found = measure_layers(
        layers, device=place.device, campaign=order.campaign, begun=lambda key: connection.send(Begun(key))
    )
    return tuple(found)


def _measure_point(point: Point, place: Place, order: Order) -> Measured:
    """Too little memory is a result like others; what the point held is gone when this returns."""
    from tonnage.benchmark import measure
    from tonnage.benchmark.failures import is_out_of_memory, short_reason

    try:
        return measure.measure_point(
            point,
            device=place.device,
            campaign=order.campaign,
            method=order.method,
            meter=place.meter,
            others_bytes=place.others_bytes,
        )
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return unsuccessful(point, order.campaign, Status.OUT_OF_MEMORY, short_reason(error))


def _reason(error: Exception) -> str:
    from tonnage.benchmark.failures import short_reason

    return short_reason(error)


def _die_with_parent() -> None:
    """A runner that is killed cannot end its process: on Linux the kernel does it, elsewhere the closed pipe does."""
    if sys.platform == "linux":
        import ctypes
        import signal

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # there is nothing to tidy up, and taking torch down takes seconds
