"""The same messages over torch.distributed: gloo, and nccl for the tensors of stages on GPUs.

Its processes find each other at a store that the first device holds, on its own address, under a name made of the token.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from tonnage.errors import MissingDependency, TonnageError, Unreachable
from tonnage.stages.links import Inbox, LostPeer, Outbox, pass_on
from tonnage.stages.tensors import pack, unpack
from tonnage.stages.wire import Received

_PIECE_BYTES = 1 << 20
_LONGEST_WAIT = timedelta(hours=24)  # for the next message; who is silent too long is found by the controller


class CollectiveLinks:
    """A process group of all devices; each pair has messages of a length, a description in JSON, and tensors."""

    def __init__(
        self,
        device: str,
        address: str,
        token: str,
        *,
        devices: Sequence[str],
        links: Sequence[tuple[str, str]],
        targets: Sequence[str],
        sources: Sequence[str],
        inbox: Inbox,
        backend: str,
        torch_device: str,
        seconds: float,
        stall_seconds: float,
    ) -> None:
        if not dist.is_available():
            raise MissingDependency("this build of torch has no torch.distributed", "use the transport `sockets`")
        self._device, self._address, self._devices = device, address, list(devices)
        self._targets, self._sources, self._inbox = targets, sources, inbox
        self._seconds, self._stall_seconds = seconds, stall_seconds
        self._name = hashlib.sha256(token.encode()).hexdigest()
        self._tensors_on = torch.device(torch_device) if backend == "nccl" else torch.device("cpu")
        self._listener = socket.create_server((address, 0)) if self._rank == 0 else None
        self._outboxes: dict[str, Outbox] = {}
        self._bytes_moved = 0
        self._links, self._groups = links, dict[tuple[int, int], Any]()

    @property
    def _rank(self) -> int:
        return self._devices.index(self._device)

    @property
    def bytes_moved(self) -> int:
        return self._bytes_moved

    def offer(self) -> str:
        return f"{self._address}:{self._listener.getsockname()[1]}" if self._listener is not None else ""

    def join(self, offers: Mapping[str, str]) -> None:
        host, _, port = offers[self._devices[0]].rpartition(":")
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(self._address)
        try:
            store = TCPStore(
                host, int(port), is_master=self._rank == 0, wait_for_workers=False,
                timeout=timedelta(seconds=self._seconds),
                master_listen_fd=self._listener.detach() if self._listener is not None else None,
            )  # fmt: skip
            dist.init_process_group(
                "gloo" if self._tensors_on.type == "cpu" else "cpu:gloo,cuda:nccl",
                store=PrefixStore(self._name, store), rank=self._rank, world_size=len(self._devices),
                timeout=_LONGEST_WAIT,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            raise Unreachable(f"torch.distributed did not come up: {str(error).splitlines()[0]}") from error
        self._make_groups()
        for source in self._sources:
            threading.Thread(target=self._receive, args=(source,), name=f"from {source}", daemon=True).start()
        for target in self._targets:
            deliver = partial(self._deliver, self._devices.index(target))
            self._outboxes[target] = Outbox(target, deliver, self._inbox)

    def send(self, device: str, header: dict[str, Any], value: Any) -> None:
        self._outboxes[device].put(header, value, self._stall_seconds)

    def close(self) -> None:
        for outbox in self._outboxes.values():
            outbox.put({"kind": "end"}, None, self._stall_seconds)
            outbox.close(self._stall_seconds)

    def _make_groups(self) -> None:
        """NCCL keeps the order of all that two processes say to each other: each direction needs a group of its own."""
        if self._tensors_on.type == "cuda":
            torch.cuda.set_device(self._tensors_on)
            for one, other in self._links:
                ranks = self._devices.index(one), self._devices.index(other)
                self._groups[ranks] = dist.new_group(list(ranks), backend="nccl")

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _deliver(self, rank: int, header: dict[str, Any], value: Any) -> None:
        spec, parts = pack(value)
        text = json.dumps({**header, "value": spec}).encode()
        try:
            dist.send(torch.tensor([len(text)]), rank)
            dist.send(_tensor(bytearray(text)), rank)
            for piece in (piece for part in parts for piece in _pieces(part)):
                dist.send(piece.to(self._tensors_on), rank, group=self._groups.get((self._rank, rank)))
                self._bytes_moved += piece.nbytes
        except RuntimeError as error:
            raise Unreachable(str(error).splitlines()[0]) from error

    def _receive(self, source: str) -> None:
        rank = self._devices.index(source)
        try:
            while (received := self._message(rank)).header["kind"] != "end":
                pass_on(self, received)
                self._inbox.put(source, received)
        except (RuntimeError, TonnageError) as error:
            self._inbox.fail(LostPeer(f"receiving from {source}: {str(error).splitlines()[0]}"))

    def _message(self, rank: int) -> Received:
        length = torch.empty(1, dtype=torch.int64)
        dist.recv(length, rank)
        start, count = perf_counter(), int(length)
        text = torch.empty(count, dtype=torch.uint8)
        dist.recv(text, rank)
        header = json.loads(bytes(text.numpy()))

        def read(part: memoryview) -> None:
            nonlocal count
            count += part.nbytes
            for piece in _pieces(part):
                here = piece if self._tensors_on.type == "cpu" else torch.empty_like(piece, device=self._tensors_on)
                dist.recv(here, rank, group=self._groups.get((rank, self._rank)))
                self._bytes_moved += piece.nbytes
                if here is not piece:
                    piece.copy_(here)

        value = unpack(header.pop("value"), read)
        return Received(header, value, count, perf_counter() - start)


def interface_of(address: str) -> str:
    """The network interface that has this address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return name
    raise Unreachable(f"no network interface here has the address {address}")


def _pieces(part: memoryview) -> list[torch.Tensor]:
    """Small enough that it shows whether something moves."""
    return [_tensor(part[start : start + _PIECE_BYTES]) for start in range(0, part.nbytes, _PIECE_BYTES)]


def _tensor(data: memoryview | bytearray) -> torch.Tensor:
    """Bytes as they are, not copied."""
    return torch.frombuffer(data, dtype=torch.uint8)
