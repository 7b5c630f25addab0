"""Bodies of REST, without a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from tonnage.serve.datatypes import Tensor
from tonnage.serve.errors import InvalidRequest, UnknownThing
from tonnage.serve.requests import Request, Response
from tonnage.serve.rest_codec import Rendering, RestCodec
from tonnage.serve.shared_regions import SharedRegions

CODEC = RestCodec(SharedRegions())


def decoded(document: Any, tail: bytes = b"", header_size: int | None = None) -> tuple[Request, Rendering]:
    head = orjson.dumps(document)
    size = len(head) if tail and header_size is None else header_size
    return CODEC.decode("model", "", head + tail, size, lambda _: None)


def one_input(**changes: Any) -> dict[str, Any]:
    given = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}
    return {"inputs": [{**given, **changes}]}


def encoded(tensor: Tensor, **rendering: Any) -> tuple[dict[str, str], dict[str, Any], bytes]:
    headers, parts = CODEC.encode(Response("model", "1", "", [tensor]), Rendering(**rendering))
    return headers, orjson.loads(parts[0]), b"".join(parts[1:])


def test_numbers_become_bytes() -> None:
    request, _ = decoded(one_input())
    assert bytes(request.inputs[0].data) == np.array([1, 2], "<f4").tobytes()


@pytest.mark.parametrize("data", [[[1.0], [2.0]], [[1.0, 2.0]], [[1.0], 2.0], [1.0, [2.0]]])
def test_lists_may_be_nested_in_any_way(data: Any) -> None:
    request, _ = decoded(one_input(data=data))
    assert bytes(request.inputs[0].data) == np.array([1, 2], "<f4").tobytes()


def test_bytes_behind_the_json_are_taken_in_the_order_of_the_inputs() -> None:
    inputs = [{"name": name, "shape": [4], "datatype": "UINT8", "parameters": {"binary_data_size": 4}} for name in "ab"]
    request, _ = decoded({"inputs": inputs}, b"12345678")
    assert [bytes(each.data) for each in request.inputs] == [b"1234", b"5678"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": 3}, "inputs[0].name"),
        ({"datatype": "FP31"}, "inputs[0].datatype"),
        ({"shape": [-1]}, "inputs[0].shape"),
        ({"shape": None}, "inputs[0].shape"),
        ({"shape": [3]}, "inputs[0].data has 2 values"),
        ({"data": "text"}, "inputs[0].data is not a list"),
        ({"data": ["1", "2"]}, "not numbers"),
        ({"datatype": "UINT8", "data": [1, 300]}, "do not fit into UINT8"),
        ({"datatype": "INT32"}, "not whole numbers"),
        ({"datatype": "BOOL", "data": [0, 1]}, "neither true nor false"),
        ({"datatype": "FP16"}, "no form in JSON"),
        ({"parameters": {"binary_data_size": 8}}, "data in two places"),
    ],
)
def test_a_wrong_input_is_refused_with_its_field(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decoded(one_input(**changes))
    assert told in refused.value.message


@pytest.mark.parametrize("size", [-1, 3, 5, "4", True])
def test_sizes_that_are_not_those_of_the_bytes_are_refused(size: Any) -> None:
    one = {"name": "x", "shape": [4], "datatype": "UINT8", "parameters": {"binary_data_size": size}}
    with pytest.raises(InvalidRequest):
        decoded({"inputs": [one]}, b"1234")


@pytest.mark.parametrize(
    "more",
    [
        {"id": 3}, {"parameters": []}, {"parameters": {"priority": -1}}, {"parameters": {"timeout": "soon"}},
        {"parameters": {"own": []}}, {"parameters": {"sequence_id": 1.5}}, {"outputs": {}}, {"outputs": [{}]},
        {"outputs": [{"name": "y", "parameters": {"classification": -1}}]},
        {"outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        decoded(one_input() | more)


def test_an_unknown_region_is_not_found() -> None:
    one = {"name": "x", "shape": [4], "datatype": "UINT8"}
    parameters = {"shared_memory_region": "nobody", "shared_memory_byte_size": 4}
    with pytest.raises(UnknownThing, match="nobody"):
        decoded({"inputs": [{**one, "parameters": parameters}]})


def test_nan_and_infinity_are_read_and_written() -> None:
    body = b'{"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [NaN, Infinity, -Infinity]}]}'
    request, _ = CODEC.decode("model", "", body, None, lambda _: None)
    np.testing.assert_array_equal(np.frombuffer(request.inputs[0].data, "<f4"), [np.nan, np.inf, -np.inf])
    _, parts = CODEC.encode(Response("model", "1", "", [request.inputs[0]]), Rendering())
    assert b"[NaN, Infinity, -Infinity]" in parts[0]


def test_outputs_that_are_named_say_for_themselves_how_they_come() -> None:
    binary = {"parameters": {"binary_data_output": True}}
    assert decoded(one_input() | binary)[1].all_binary
    _, rendering = decoded(one_input() | binary | {"outputs": [{"name": "y"}]})
    assert not rendering.all_binary


def test_bytes_come_behind_the_json() -> None:
    data = np.array([1, 2], "<f4").tobytes()
    headers, document, tail = encoded(Tensor("y", "FP32", (2,), data), all_binary=True)
    assert document["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    ]
    assert tail == data
    assert int(headers["Inference-Header-Content-Length"]) == len(orjson.dumps(document))


def test_strings_that_are_no_text_must_come_as_bytes() -> None:
    tensor = Tensor("y", "BYTES", (1,), b"\x01\x00\x00\x00\xff")
    with pytest.raises(InvalidRequest, match="UTF-8"):
        encoded(tensor)
    assert encoded(tensor, all_binary=True)[2] == tensor.data
