"""The process of one device: `python -m tonnage.stages.worker --device NAME --controller ADDRESS --address HOST`.

It gets its stage from the controller, connects to its neighbours, runs, and tells what it measured. The token of the run is
in the environment, where no list of processes shows it. It ends when the controller is gone.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
from typing import Any

import torch

from tonnage.benchmark.kept_memory import keep_freed_memory
from tonnage.errors import TonnageError
from tonnage.stages.executor import Activity, Executor, Routes
from tonnage.stages.links import Inbox, Links, LostPeer, Outbox, SocketLinks
from tonnage.stages.stage import Stage
from tonnage.stages.timings import Clock, Timings, peak_bytes
from tonnage.stages.training import Training, TrainingExecutor
from tonnage.stages.wire import Connection, connect
from tonnage.stages.worker_names import TOKEN

_CONNECT_SECONDS = 60.0
_STALL_SECONDS = 60.0  # until the order tells


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    token = os.environ.pop(TOKEN, "")
    try:
        control = connect(options.controller, token, seconds=_CONNECT_SECONDS, stall_seconds=_STALL_SECONDS)
    except TonnageError as error:
        sys.exit(f"{options.device}: {error.message}")
    worker = Worker(options, token, control)
    try:
        worker.run()
        code = 0
    except Exception as error:  # whatever it was, the controller is told, and the process ends
        worker.tell(error)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of transports may be waiting in the kernel


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tonnage.stages.worker")
    parser.add_argument("--device", required=True)
    parser.add_argument("--controller", required=True, help="unix:PATH or HOST:PORT")
    parser.add_argument("--address", default="127.0.0.1", help="where neighbours reach this one")
    parser.add_argument("--torch-device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pace", type=float, default=1.0, help="emulates a node that is so many times slower")
    parser.add_argument("--beat-seconds", type=float, default=1.0, help="between two signs of life")
    return parser.parse_args()


class Worker:
    """From the first word to the last."""

    def __init__(self, options: argparse.Namespace, token: str, control: Connection) -> None:
        self.options, self.token, self.control = options, token, control
        self.activity, self.inbox, self.timings = Activity(), Inbox(), Timings()
        self.links: Links | None = None
        self.has_reported = False

    def run(self) -> None:
        self.control.send({
            "kind": "hello", "name": self.options.device, "process": os.getpid(), "host": socket.gethostname(),
            "torch": torch.__version__,
        })  # fmt: skip
        threading.Thread(target=self._live, args=(self.options.beat_seconds,), daemon=True).start()
        received = self.control.receive()
        order, weights = received.header, received.value
        links = self.links = self._links(order)
        self.control.send({"kind": "offer", "name": links.offer()})
        executor = self._executor(order, weights, links)
        links.join(self.control.receive().header["offers"])
        threading.Thread(target=self._listen, daemon=True).start()
        self.control.send({"kind": "ready"})
        executor.run()
        self.activity.doing = "ending"
        links.close()
        executor.controller.close(order["stall_seconds"])
        self._report(order, executor)

    def tell(self, error: Exception) -> None:
        """The controller decides whose fault it was."""
        message = error.message if isinstance(error, TonnageError) else f"{type(error).__name__}: {_first_line(error)}"
        try:
            self.control.send({
                "kind": "failed", "message": message, "hint": error.hint if isinstance(error, TonnageError) else "",
                "doing": self.activity.doing, "is_peer": isinstance(error, LostPeer),
            })  # fmt: skip
        except TonnageError:
            print(f"{self.options.device}: {message}", file=sys.stderr)

    # -- parts ------------------------------------------------------------------------------------------------------------

    def _links(self, order: dict[str, Any]) -> Links:
        common = {"targets": order["targets"], "sources": order["sources"], "inbox": self.inbox}
        limits = {"seconds": order["setup_seconds"], "stall_seconds": order["stall_seconds"]}
        device, address = self.options.device, self.options.address
        if order["transport"] == "sockets":
            return SocketLinks(device, address, self.token, **common, **limits)
        from tonnage.stages.collective import CollectiveLinks

        return CollectiveLinks(
            device, address, self.token, devices=order["devices"], links=order["links"], backend=order["transport"],
            torch_device=self.options.torch_device, **common, **limits,
        )  # fmt: skip

    def _executor(self, order: dict[str, Any], weights: dict[str, torch.Tensor], links: Links) -> Executor:
        device = torch.device(self.options.torch_device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        clock = Clock(self.timings, self.options.pace, torch.cuda.synchronize if device.type == "cuda" else None)
        common: dict[str, Any] = {
            "device": self.options.device,
            "stage": Stage.from_json(order["stage"]),
            "weights": {name: _placed(weight, device) for name, weight in weights.items()},
            "torch_device": device,
            "routes": Routes({stage: tuple(devices) for stage, devices in order["replicas"].items()}),
            "inbox": self.inbox,
            "links": links,
            "controller": Outbox("the controller", self.control.send, self.inbox),
            "seconds": order["stall_seconds"],
            "clock": clock,
            "activity": self.activity,
        }
        if order["training"] is None:
            return Executor(**common)
        holders = {name: tuple(devices) for name, devices in order["holders"].items()}
        return TrainingExecutor(
            **common, training=Training(**order["training"]), loss=order["loss"], holders=holders,
            under_way=order["under_way"],
        )  # fmt: skip

    def _live(self, seconds: float) -> None:
        """Signs of life, with what is being done."""
        while True:
            activity, moved = self.activity, self.links.bytes_moved if self.links is not None else 0
            try:
                self.control.send({
                    "kind": "alive", "doing": activity.doing, "steps": activity.steps + moved,
                    "is_computing": activity.is_computing,
                })  # fmt: skip
            except TonnageError:
                self._leave()
            time.sleep(seconds)

    def _listen(self) -> None:
        try:
            while True:
                self.inbox.put("", self.control.receive())
        except TonnageError:
            self._leave()

    def _leave(self) -> None:
        """The controller is gone, as it should be when it has heard everything."""
        os._exit(0 if self.has_reported else 2)

    def _report(self, order: dict[str, Any], executor: Executor) -> None:
        weights = {name: executor.weights[name].detach() for name in order["returns"]}
        self.has_reported = True
        rows, peak = self.timings.to_json(), peak_bytes(executor.torch_device.type)
        self.control.send({"kind": "report", "timings": rows, "peak_bytes": peak}, weights)
        time.sleep(order["stall_seconds"])  # the controller closes the connection when it has read it


def _placed(weight: torch.Tensor, device: torch.device) -> torch.Tensor:
    return weight.detach().to(device).requires_grad_(weight.requires_grad)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:300]


if __name__ == "__main__":
    main()
