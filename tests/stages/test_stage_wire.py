"""What goes over a connection: tensors as they lie in memory, and nothing for those who do not know the token."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tonnage.errors import Refused, Unreachable, UsageError
from tonnage.stages.tensors import pack, unpack
from tonnage.stages.wire import Closed, Connection, Listener, connect

BASE = torch.arange(240.0).reshape(4, 5, 12)


def there_and_back(value: Any) -> Any:
    spec, parts = pack(value)
    waiting = iter(parts)

    def read(part: memoryview) -> None:
        part[:] = next(waiting)

    return unpack(spec, read)


@pytest.mark.parametrize(
    "tensor",
    [
        BASE,
        BASE.transpose(0, 2),
        BASE[1:, ::2, 3:7],
        BASE[:, :1].expand(4, 6, 12),
        BASE.unfold(2, 4, 2),
        BASE[0, 0, 3:],
        torch.tensor(3.5),
        torch.empty(0, 3),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(5).to(torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.randint(-5, 5, (3,), dtype=torch.int8),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.dtype}",
)
def test_a_tensor_keeps_its_bits_and_its_place_in_memory(tensor: torch.Tensor) -> None:
    found = there_and_back(tensor)
    assert torch.equal(found, tensor)
    assert (found.dtype, found.stride()) == (tensor.dtype, tensor.stride())
    if not tensor.is_conj() and tensor.numel():
        assert found.data_ptr() % 64 == tensor.data_ptr() % 64


def test_gaps_and_repetitions_are_not_sent() -> None:
    assert sum(part.nbytes for part in pack(BASE[1:, ::2, 3:7])[1]) == 3 * 3 * 4 * 4
    assert sum(part.nbytes for part in pack(torch.zeros(1).expand(1000))[1]) == 4


def test_values_other_than_tensors_come_back_as_they_were() -> None:
    value = (None, True, 3, 2.5, "text", [1, (2, None)], {"a": torch.ones(2)}, 1j)
    found = there_and_back(value)
    assert found[:6] == value[:6]
    assert torch.equal(found[6]["a"], torch.ones(2))
    assert found[7] == 1j


def test_a_tensor_says_whether_gradients_come_back() -> None:
    assert there_and_back(torch.ones(2, requires_grad=True)).requires_grad


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(UsageError, match="layout"):
        pack(torch.eye(3).to_sparse())


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1:0", "secret", 2.0)
    yield made
    made.close()


def accepted(listener: Listener) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def accept() -> None:
        try:
            found.append(listener.accept(5.0))
        except Refused as error:
            found.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    return thread, found


def test_who_knows_the_token_gets_through(listener: Listener) -> None:
    thread, found = accepted(listener)
    connection = connect(listener.address, "secret", seconds=5, stall_seconds=2)
    thread.join()
    connection.send({"kind": "value"}, {"x": BASE})
    received = found[0].receive()
    assert received.header == {"kind": "value"}
    assert torch.equal(received.value["x"], BASE)
    connection.close()
    with pytest.raises(Closed):
        found[0].receive()
    found[0].close()


def test_who_does_not_is_turned_away(listener: Listener) -> None:
    thread, found = accepted(listener)
    with pytest.raises(Refused):
        connect(listener.address, "guess", seconds=5, stall_seconds=2)
    thread.join()
    assert isinstance(found[0], Refused)


def test_a_listener_that_does_not_know_the_token_is_noticed() -> None:
    impostor = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with impostor.accept()[0] as sock:
            sock.sendall(b"n" * 32)
            sock.recv(64)
            sock.sendall(b"p" * 32)

    thread = threading.Thread(target=accept)
    thread.start()
    with pytest.raises(Refused, match="does not know the token"):
        connect(f"127.0.0.1:{impostor.getsockname()[1]}", "secret", seconds=5, stall_seconds=2)
    thread.join()
    impostor.close()


def test_a_message_that_stops_in_the_midst_is_an_error() -> None:
    one, other = socket.socketpair()
    connection = Connection(other, 0.2)
    one.sendall(b"\0\0\0\x20{")
    with pytest.raises(Unreachable, match="in the midst of a message"):
        connection.receive()
    connection.close()
    one.close()


def test_a_neighbour_that_takes_nothing_is_an_error() -> None:
    one, other = socket.socketpair()
    connection = Connection(one, 0.2)
    with pytest.raises(Unreachable, match="no byte was taken"):
        connection.send({"kind": "value"}, torch.zeros(8 << 20))
    connection.close()
    other.close()
