"""Messages of gRPC, without a server."""

from __future__ import annotations

from multiprocessing import shared_memory
from typing import Any

import numpy as np
import pytest

from tonnage.serve.datatypes import Tensor
from tonnage.serve.errors import InvalidRequest
from tonnage.serve.grpc_codec import GrpcCodec
from tonnage.serve.grpc_messages import message
from tonnage.serve.requests import Response
from tonnage.serve.shared_regions import SharedRegions, Span


def asked(datatype: str = "FP32", shape: tuple[int, ...] = (2,), raw: bytes | None = None) -> Any:
    made = message("ModelInferRequest")(model_name="model")
    made.inputs.add(name="x", datatype=datatype, shape=shape)
    if raw is not None:
        made.raw_input_contents.append(raw)
    return made


def data_of(request: Any) -> bytes:
    decoded, _ = GrpcCodec(SharedRegions()).decode(request, lambda _: None)
    return bytes(decoded.inputs[0].data)


def refusal_of(request: Any) -> str:
    with pytest.raises(InvalidRequest) as refused:
        data_of(request)
    return refused.value.message


def test_raw_contents_are_taken_as_they_are() -> None:
    assert data_of(asked(raw=b"12345678")) == b"12345678"


def test_typed_contents_become_bytes() -> None:
    request = asked("INT8")
    request.inputs[0].contents.int_contents.extend([-1, 2])
    assert data_of(request) == b"\xff\x02"


def test_typed_strings_get_their_lengths() -> None:
    request = asked("BYTES")
    request.inputs[0].contents.bytes_contents.extend([b"a", b""])
    assert data_of(request) == b"\x01\0\0\0a\0\0\0\0"


def test_numbers_that_do_not_fit_are_refused() -> None:
    request = asked("INT8")
    request.inputs[0].contents.int_contents.extend([300, 2])
    assert "do not fit into INT8" in refusal_of(request)


def test_contents_of_another_datatype_are_refused() -> None:
    request = asked("FP32")
    request.inputs[0].contents.int_contents.extend([1, 2])
    assert "belongs into fp32_contents" in refusal_of(request)


def test_raw_contents_must_be_as_many_as_inputs() -> None:
    request = asked(raw=b"12345678")
    request.raw_input_contents.append(b"more")
    assert "raw_input_contents has 2 tensors" in refusal_of(request)


def test_raw_and_typed_contents_together_are_refused() -> None:
    request = asked(raw=b"12345678")
    request.inputs[0].contents.fp32_contents.extend([1.0])
    assert "inputs[0] has contents although" in refusal_of(request)


@pytest.mark.parametrize(("datatype", "shape"), [("FP31", (2,)), ("FP32", (-1,)), ("FP32", (2**40, 2**40))])
def test_impossible_tensors_are_refused(datatype: str, shape: tuple[int, ...]) -> None:
    assert "inputs[0]" in refusal_of(asked(datatype, shape, b""))


def test_no_classes_cannot_be_asked_for() -> None:
    request = asked(raw=b"12345678")
    request.outputs.add(name="y").parameters["classification"].int64_param = 0
    assert "outputs[0].parameters.classification" in refusal_of(request)


def test_outputs_in_shared_memory_leave_their_place_among_the_raw_contents() -> None:
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        regions = SharedRegions()
        regions.register("region", memory.name, 0, 64)
        data = np.array([1, 2], "<f4").tobytes()
        outputs = [Tensor(name, "FP32", (2,), data) for name in ("a", "b")]
        made = GrpcCodec(regions).encode(Response("model", "1", "", outputs), {"a": Span("region", 8, 16)})
        assert list(made.raw_output_contents) == [b"", data]
        assert bytes(memory.buf[8:16]) == data
    finally:
        memory.close()
        memory.unlink()
