"""Inference requests and responses as REST bodies: JSON, with tensors in it or as bytes behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tonnage.serve.datatypes import BF16, BYTES, DATATYPES, DTYPES, Tensor, as_array, join_strings
from tonnage.serve.errors import InvalidRequest
from tonnage.serve.requests import Answer, Request, RequestedOutput, Response
from tonnage.serve.shared_regions import SharedRegions, Span

_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_MOST_AXES = 32
_PARAMETER_KINDS = (bool, int, str, float)
_MOST_ELEMENTS = 1 << 40
_NUMBERS = {float, int}


@dataclass(slots=True)
class Rendering:
    """How a client wants its outputs: names that come as bytes, and regions that they go into."""

    all_binary: bool = False
    binary: dict[str, bool] = field(default_factory=dict)
    regions: dict[str, Span] = field(default_factory=dict)


@dataclass(slots=True)
class RestCodec:
    """Regions are those that clients have registered."""

    regions: SharedRegions

    def decode(
        self,
        model: str,
        version: str,
        body: bytes | bytearray,
        header_size: int | None,
        answer: Callable[[Answer], None],
    ) -> tuple[Request, Rendering]:
        """Raises `InvalidRequest` with the field that is wrong."""
        document, rest = _split(body, header_size)
        if type(document) is not dict:
            raise InvalidRequest("the body is not a JSON object")
        given = document.get("inputs")
        if type(given) is not list or not given:
            raise InvalidRequest("'inputs' is missing, or not a list of at least one tensor")
        place, inputs = 0, []
        for number, one in enumerate(given):
            tensor, place = self._input(one, number, rest, place)
            inputs.append(tensor)
        if place != len(rest):
            raise InvalidRequest(f"{len(rest)} bytes follow the JSON header; the inputs declare {place}")
        request = Request(model, version, inputs, answer)
        rendering = Rendering()
        if "id" in document:
            request.id = _typed(document["id"], str, "id")
        if "parameters" in document:
            _read_parameters(request, rendering, _typed(document["parameters"], dict, "parameters"))
        if "outputs" in document:
            request.outputs = self._outputs(_typed(document["outputs"], list, "outputs"), rendering)
            rendering.all_binary = rendering.all_binary and request.outputs is None  # each says for itself
        return request, rendering

    def encode(self, response: Response, rendering: Rendering) -> tuple[dict[str, str], list[bytes | memoryview]]:
        """Headers and parts of the body."""
        described, binary = [], []
        for tensor in response.outputs:
            one: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
            span = rendering.regions.get(tensor.name) if rendering.regions else None
            if span is not None:
                self.regions.write(span, tensor)
            elif rendering.binary.get(tensor.name, rendering.all_binary):
                one["parameters"] = {"binary_data_size": len(tensor.data)}
                binary.append(tensor.data)
            else:
                one["data"] = _json_values(tensor)
            described.append(one)
        document: dict[str, Any] = {"id": response.id} if response.id else {}
        document["model_name"], document["model_version"] = response.model, response.version
        if response.parameters:
            document["parameters"] = dict(response.parameters)
        document["outputs"] = described
        head = orjson.dumps(document, option=_NUMPY)
        if b"null" in head:  # perhaps a number that JSON does not have
            for one in described:
                if isinstance(one.get("data"), np.ndarray):
                    one["data"] = _with_nan(one["data"])
            head = orjson.dumps(document, option=_NUMPY)
        if not binary:
            return {"Content-Type": "application/json"}, [head]
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
        return headers, [head, *binary]

    def _input(self, one: Any, number: int, rest: memoryview, place: int) -> tuple[Tensor, int]:
        where = f"inputs[{number}]"
        if type(one) is not dict:
            raise InvalidRequest(f"{where} is not an object")
        name, datatype, sizes = one.get("name"), one.get("datatype"), one.get("shape")
        if type(name) is not str:
            raise InvalidRequest(f"{where}.name is missing, or not a string")
        if type(datatype) is not str or datatype not in DTYPES:
            raise InvalidRequest(f"{where}.datatype is {datatype!r}; it must be one of {', '.join(DATATYPES)}")
        shape = _shape(sizes, where)
        parameters = one.get("parameters")
        if parameters and type(parameters) is dict:
            if "data" in one and ("binary_data_size" in parameters or "shared_memory_region" in parameters):
                raise InvalidRequest(f"{where} ({name}) has data in two places; only one of them can count")
            size = parameters.get("binary_data_size")
            if size is not None:
                if type(size) is not int or size < 0 or place + size > len(rest):
                    left = len(rest) - place
                    raise InvalidRequest(
                        f"{where}.parameters.binary_data_size is {size!r}; {left} bytes are left of the body"
                    )
                return Tensor(name, datatype, shape, rest[place : place + size]), place + size
            span = Span.of(parameters, where)
            if span is not None:
                return Tensor(name, datatype, shape, self.regions.read(span)), place
        if "data" not in one:
            raise InvalidRequest(f"{where} ({name}) has no data")
        return Tensor(name, datatype, shape, _json_bytes(one["data"], datatype, shape, where)), place

    def _outputs(self, given: list[Any], rendering: Rendering) -> list[RequestedOutput] | None:
        found = []
        for number, one in enumerate(given):
            where = f"outputs[{number}]"
            if type(one) is not dict or type(one.get("name")) is not str:
                raise InvalidRequest(f"{where}.name is missing, or not a string")
            name, parameters = one["name"], _typed(one.get("parameters", {}), dict, f"{where}.parameters")
            classes = _whole(parameters.get("classification", 0), f"{where}.parameters.classification")
            if "binary_data" in parameters:
                rendering.binary[name] = _typed(parameters["binary_data"], bool, f"{where}.parameters.binary_data")
            span = Span.of(parameters, where)
            if span is not None:
                self.regions.check(span)
                rendering.regions[name] = span
            found.append(RequestedOutput(name, classes))
        return found or None


def _split(body: bytes | bytearray, header_size: int | None) -> tuple[Any, memoryview]:
    if header_size is None:
        head, rest = memoryview(body), memoryview(b"")
    elif 0 <= header_size <= len(body):
        whole = memoryview(body)
        head, rest = whole[:header_size], whole[header_size:]
    else:
        raise InvalidRequest(f"Inference-Header-Content-Length is {header_size}; the body has {len(body)} bytes")
    try:
        return orjson.loads(head), rest
    except orjson.JSONDecodeError as error:
        document = _with_infinities(bytes(head))
        if document is None:
            raise InvalidRequest(f"the body is not JSON: {error}") from None
        return document, rest


def _with_infinities(text: bytes) -> Any:
    """JSON with NaN and Infinity, which are none but which Triton reads and writes; None where it is not that."""
    if b"NaN" not in text and b"Infinity" not in text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_parameters(request: Request, rendering: Rendering, parameters: dict[str, Any]) -> None:
    rendering.all_binary = _typed(parameters.get("binary_data_output", False), bool, "parameters.binary_data_output")
    request.priority = _whole(parameters.get("priority", 0), "parameters.priority")
    request.timeout_seconds = _whole(parameters.get("timeout", 0), "parameters.timeout") / 1e6
    if type(parameters.get("sequence_id", "")) is not str:
        _whole(parameters["sequence_id"], "parameters.sequence_id")
    for name, value in parameters.items():
        if type(value) not in _PARAMETER_KINDS:
            raise InvalidRequest(f"parameters.{name} is neither a string nor a number nor true or false")


def _shape(sizes: Any, where: str) -> tuple[int, ...]:
    if type(sizes) is not list or len(sizes) > _MOST_AXES:
        raise InvalidRequest(f"{where}.shape is missing, or not a list of sizes")
    elements = 1
    for size in sizes:
        if type(size) is not int or size < 0:
            raise InvalidRequest(f"{where}.shape has {size!r}, which is no size")
        elements *= size
    if elements > _MOST_ELEMENTS:
        raise InvalidRequest(f"{where}.shape has {elements} elements, more than any body could hold")
    return tuple(sizes)


def _json_bytes(data: Any, datatype: str, shape: tuple[int, ...], where: str) -> bytes:
    flat, kinds = _flat(data, where)
    elements = prod(shape)
    if len(flat) != elements:
        raise InvalidRequest(f"{where}.data has {len(flat)} values; its shape {list(shape)} needs {elements}")
    if datatype == BYTES:
        if kinds - {str}:
            raise InvalidRequest(f"{where}.data has values that are not strings, which BYTES are")
        return join_strings(value.encode() for value in flat)
    if datatype == "BOOL":
        if kinds - {bool}:
            raise InvalidRequest(f"{where}.data has values that are neither true nor false, which BOOL are")
        return bytes(flat)
    if datatype in ("FP32", "FP64"):
        if not kinds <= _NUMBERS:
            raise InvalidRequest(f"{where}.data has values that are not numbers, which {datatype} are")
        return np.array(flat, DTYPES[datatype]).tobytes()
    if datatype in ("FP16", BF16):
        raise InvalidRequest(f"{where}.data: {datatype} has no form in JSON; send it as binary data")
    return _whole_numbers(flat, kinds, datatype, where)


def _whole_numbers(flat: list[Any], kinds: set[type], datatype: str, where: str) -> bytes:
    if kinds - {int}:
        raise InvalidRequest(f"{where}.data has values that are not whole numbers, which {datatype} are")
    try:
        return np.array(flat, DTYPES[datatype]).tobytes()
    except OverflowError:
        raise InvalidRequest(f"{where}.data has numbers that do not fit into {datatype}") from None


def _flat(data: Any, where: str) -> tuple[list[Any], set[type]]:
    """The values, and of which kinds they are. Lists may be nested as the shape is, or not, or otherwise."""
    if type(data) is not list:
        raise InvalidRequest(f"{where}.data is not a list")
    for _ in range(_MOST_AXES):
        kinds = set(map(type, data))
        if list not in kinds:
            return data, kinds
        data = [value for part in data for value in (part if type(part) is list else (part,))]
    raise InvalidRequest(f"{where}.data has lists in lists, {_MOST_AXES} deep and more")


def _json_values(tensor: Tensor) -> Any:
    if tensor.datatype == BYTES:
        array = as_array(BYTES, tensor.shape, tensor.data)
        try:
            return [value.decode() for value in array.ravel()]
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"output {tensor.name} has strings that are not UTF-8: ask for it as binary data"
            ) from None
    if tensor.datatype in ("FP16", BF16):
        raise InvalidRequest(
            f"output {tensor.name} is {tensor.datatype}, which has no form in JSON: ask for binary data"
        )
    return np.frombuffer(tensor.data, DTYPES[tensor.datatype])


def _with_nan(array: npt.NDArray[Any]) -> Any:
    """With NaN and Infinity, as Triton and its clients have it, where orjson would write null."""
    is_odd = array.dtype.kind == "f" and not np.isfinite(array).all()
    return orjson.Fragment(json.dumps(array.tolist())) if is_odd else array


def _typed(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind:
        names = {str: "a string", dict: "an object", list: "a list", int: "a whole number", bool: "true or false"}
        raise InvalidRequest(f"{where} is not {names[kind]}")
    return value


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or value < 0:
        raise InvalidRequest(f"{where} is {value!r}, not a whole number from 0 on")
    return value
