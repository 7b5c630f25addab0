"""Connections between the processes of a run: a handshake by the run's token, then messages of JSON and raw bytes.

Nothing is unpickled, and nothing but the handshake is read from somebody who does not know the token. What is sent is not
encrypted: runs belong into networks that are trusted.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tonnage.errors import Refused, TonnageError, Unreachable
from tonnage.stages.tensors import pack, unpack

_NONCE_BYTES, _PROOF_BYTES = 32, 32
_HANDSHAKE_SECONDS = 10.0
_CHUNK_BYTES = 1 << 20
_LARGEST_HEADER_BYTES = 256 << 20
_UNIX = "unix:"


class Closed(TonnageError):
    """The other side has closed the connection."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message, and what its transfer took from the first byte to the last."""

    header: dict[str, Any]
    value: Any
    nbytes: int
    seconds: float


class Connection:
    """Messages both ways. No byte moved for `stall_seconds` in the midst of a message: `Unreachable`."""

    def __init__(self, sock: socket.socket, stall_seconds: float) -> None:
        self._socket, self._stall_seconds, self._lock = sock, stall_seconds, threading.Lock()
        self.bytes_moved = 0  # so far, also of messages that are not complete
        sock.settimeout(stall_seconds)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, header: dict[str, Any], value: Any = None) -> int:
        """The number of bytes; several threads may send."""
        spec, parts = pack(value)
        text = json.dumps({**header, "value": spec}).encode()
        with self._lock:
            self._write(memoryview(struct.pack("!I", len(text)) + text))
            for part in parts:
                self._write(part)
        return len(text) + sum(part.nbytes for part in parts)

    def receive(self) -> Received:
        """The next message, however long it takes until it begins; raises `Closed` when there will be none."""
        size = bytearray(4)
        self._read(memoryview(size), is_first=True)
        start = time.perf_counter()
        (length,) = struct.unpack("!I", size)
        if length > _LARGEST_HEADER_BYTES:
            raise Unreachable(f"a message of {length:,} bytes of JSON is none of ours")
        text = bytearray(length)
        self._read(memoryview(text))
        header = json.loads(text)
        count = length

        def read(part: memoryview) -> None:
            nonlocal count
            count += part.nbytes
            self._read(part)

        value = unpack(header.pop("value"), read)
        return Received(header, value, count, time.perf_counter() - start)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _write(self, data: memoryview) -> None:
        while data.nbytes:
            try:
                count = self._socket.send(data[:_CHUNK_BYTES])
            except TimeoutError:
                raise Unreachable(f"no byte was taken for {self._stall_seconds:g} s") from None
            except OSError as error:
                raise Closed(f"the connection is gone: {error.strerror}") from None
            self.bytes_moved += count
            data = data[count:]

    def _read(self, data: memoryview, *, is_first: bool = False) -> None:
        while data.nbytes:
            try:
                count = self._socket.recv_into(data)
            except TimeoutError:
                if is_first and data.nbytes == 4:
                    continue  # nothing has begun: whether that is right is for the controller to say
                raise Unreachable(f"no byte came for {self._stall_seconds:g} s in the midst of a message") from None
            except OSError as error:
                raise Closed(f"the connection is gone: {error.strerror}") from None
            if count == 0:
                raise Closed("the connection was closed")
            self.bytes_moved += count
            data = data[count:]


class Listener:
    """Takes connections of those who know the token; others are turned away."""

    def __init__(self, address: str, token: str, stall_seconds: float) -> None:
        self._token, self._stall_seconds = token, stall_seconds
        self._socket = _socket_for(address)
        self._socket.bind(_socket_address(address))
        self._socket.listen(64)
        if not address.startswith(_UNIX):
            host = address.rpartition(":")[0]
            address = f"{host}:{self._socket.getsockname()[1]}"
        self.address = address

    def accept(self, seconds: float) -> Connection | None:
        """None if nobody came; raises `Refused` if a stranger did."""
        self._socket.settimeout(seconds)
        try:
            sock, _ = self._socket.accept()
        except TimeoutError:
            return None
        try:
            _prove_to_caller(sock, self._token)
        except (OSError, Refused) as error:
            sock.close()
            raise Refused("somebody who does not know the token of this run was turned away") from error
        return Connection(sock, self._stall_seconds)

    def close(self) -> None:
        self._socket.close()


def connect(address: str, token: str, *, seconds: float, stall_seconds: float) -> Connection:
    """A connection to a listener that knows the same token; tries until it is there."""
    deadline = time.monotonic() + seconds
    while True:
        sock = _socket_for(address)
        try:
            sock.settimeout(max(deadline - time.monotonic(), 0.1))
            sock.connect(_socket_address(address))
            break
        except OSError as error:
            sock.close()
            if time.monotonic() > deadline:
                raise Unreachable(f"{address} cannot be reached: {error}") from None
            time.sleep(0.05)
    try:
        _prove_to_listener(sock, token)
    except OSError as error:
        sock.close()
        raise Refused(f"{address} has refused the token of this run: {error}") from None
    return Connection(sock, stall_seconds)


# -- inside ---------------------------------------------------------------------------------------------------------------


def _prove_to_caller(sock: socket.socket, token: str) -> None:
    sock.settimeout(_HANDSHAKE_SECONDS)
    ours = secrets.token_bytes(_NONCE_BYTES)
    sock.sendall(ours)
    answer = _exactly(sock, _NONCE_BYTES + _PROOF_BYTES)
    theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(token, b"caller", ours, theirs)):
        raise Refused("wrong token")
    sock.sendall(_proof(token, b"listener", ours, theirs))


def _prove_to_listener(sock: socket.socket, token: str) -> None:
    sock.settimeout(_HANDSHAKE_SECONDS)
    theirs, ours = _exactly(sock, _NONCE_BYTES), secrets.token_bytes(_NONCE_BYTES)
    sock.sendall(ours + _proof(token, b"caller", theirs, ours))
    if not hmac.compare_digest(_exactly(sock, _PROOF_BYTES), _proof(token, b"listener", theirs, ours)):
        raise ConnectionError("it does not know the token itself")


def _proof(token: str, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(token.encode(), role + first + second, "sha256")


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data


def _socket_for(address: str) -> socket.socket:
    return socket.socket(socket.AF_UNIX if address.startswith(_UNIX) else socket.AF_INET)


def _socket_address(address: str) -> Any:
    if address.startswith(_UNIX):
        return address.removeprefix(_UNIX)
    host, _, port = address.rpartition(":")
    return host, int(port)
