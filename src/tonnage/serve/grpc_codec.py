"""Inference requests and responses as protobuf messages: tensors as raw bytes, as typed contents, or in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tonnage.serve.datatypes import BYTES, DATATYPES, DTYPES, Tensor, join_strings
from tonnage.serve.errors import InvalidRequest
from tonnage.serve.grpc_messages import message
from tonnage.serve.requests import Answer, Request, RequestedOutput, Response
from tonnage.serve.shared_regions import SharedRegions, Span

_ModelInferResponse = message("ModelInferResponse")
# Which field of the contents holds a datatype.
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", BYTES: "bytes_contents",
}  # fmt: skip
_MOST_ELEMENTS = 1 << 40


@dataclass(slots=True)
class GrpcCodec:
    regions: SharedRegions

    def decode(self, given: Any, answer: Callable[[Answer], None]) -> tuple[Request, dict[str, Span]]:
        """And the regions that outputs go into. Raises `InvalidRequest` with the field that is wrong."""
        raw = given.raw_input_contents
        place, inputs = 0, []
        for number, one in enumerate(given.inputs):
            tensor, taken = self._input(one, number, raw, place)
            inputs.append(tensor)
            place += taken
        if place != len(raw):
            raise InvalidRequest(f"raw_input_contents has {len(raw)} tensors; the inputs need {place}")
        request = Request(given.model_name, given.model_version, inputs, answer, given.id)
        if given.parameters:
            parameters = {name: _value(each) for name, each in given.parameters.items()}
            request.priority = _whole(parameters.get("priority", 0), "parameters.priority")
            request.timeout_seconds = _whole(parameters.get("timeout", 0), "parameters.timeout") / 1e6
            if type(parameters.get("sequence_id", "")) not in (str, int):
                raise InvalidRequest("parameters.sequence_id is neither a string nor a whole number")
        spans: dict[str, Span] = {}
        if given.outputs:
            request.outputs = [self._output(one, number, spans) for number, one in enumerate(given.outputs)]
        return request, spans

    def encode(self, response: Response, spans: dict[str, Span]) -> Any:
        made = _ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
        for tensor in response.outputs:
            made.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            span = spans.get(tensor.name)
            if span is None:
                made.raw_output_contents.append(tensor.data)
            else:
                self.regions.write(span, tensor)
                made.raw_output_contents.append(b"")  # clients count them
        return made

    def _input(self, one: Any, number: int, raw: Any, place: int) -> tuple[Tensor, int]:
        """And how many of the raw tensors it took."""
        where = f"inputs[{number}]"
        if one.datatype not in DTYPES:
            raise InvalidRequest(f"{where}.datatype is {one.datatype!r}; it must be one of {', '.join(DATATYPES)}")
        shape = tuple(one.shape)
        if any(size < 0 for size in shape) or prod(shape) > _MOST_ELEMENTS:
            raise InvalidRequest(f"{where}.shape is {list(shape)}, which no tensor has")
        if one.parameters:
            span = Span.of({name: _value(each) for name, each in one.parameters.items()}, where)
            if span is not None:
                return Tensor(one.name, one.datatype, shape, self.regions.read(span)), 0
        if raw:
            if one.HasField("contents"):
                raise InvalidRequest(f"{where} has contents although raw_input_contents are given")
            if place >= len(raw):
                raise InvalidRequest(f"{where} has no data: raw_input_contents has {len(raw)} tensors")
            return Tensor(one.name, one.datatype, shape, raw[place]), 1
        return Tensor(one.name, one.datatype, shape, _contents(one, where)), 0

    def _output(self, one: Any, number: int, spans: dict[str, Span]) -> RequestedOutput:
        where = f"outputs[{number}]"
        parameters = {name: _value(each) for name, each in one.parameters.items()}
        span = Span.of(parameters, where)
        if span is not None:
            self.regions.check(span)
            spans[one.name] = span
        if "classification" not in parameters:
            return RequestedOutput(one.name)
        classes = _whole(parameters["classification"], f"{where}.parameters.classification")
        if not classes:
            raise InvalidRequest(f"{where}.parameters.classification is 0: no classes are asked for")
        return RequestedOutput(one.name, classes)


def _contents(one: Any, where: str) -> bytes:
    field = _CONTENTS.get(one.datatype)
    if field is None:
        raise InvalidRequest(f"{where}: {one.datatype} has no typed contents; use raw_input_contents")
    filled = [each.name for each, _ in one.contents.ListFields()]
    if any(name != field for name in filled):
        raise InvalidRequest(f"{where}.contents has {filled[0]}; {one.datatype} belongs into {field}")
    values = getattr(one.contents, field)
    if len(values) != prod(one.shape):
        raise InvalidRequest(
            f"{where}.contents has {len(values)} values; its shape {list(one.shape)} needs {prod(one.shape)}"
        )
    if one.datatype == BYTES:
        return join_strings(values)
    try:
        return np.array(values, DTYPES[one.datatype]).tobytes()
    except OverflowError:
        raise InvalidRequest(f"{where}.contents has numbers that do not fit into {one.datatype}") from None


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("choice")
    return getattr(parameter, chosen) if chosen else None


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or value < 0:
        raise InvalidRequest(f"{where} is {value!r}, not a whole number from 0 on")
    return value
