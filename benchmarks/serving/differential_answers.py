"""Sends requests to a server, and reduces its answers to what must be the same on both: status, and the tensors or facts."""

import gzip
import http.client
import json
import struct
import zlib
from dataclasses import dataclass
from queue import Queue
from typing import Any

import grpc
import numpy as np
from differential_grpc import GrpcRequest
from differential_rest import RestRequest
from google.protobuf import json_format
from tritonclient.grpc import service_pb2

_SECONDS = 30.0
GONE = ("no answer", "UNAVAILABLE", "DEADLINE_EXCEEDED", "stream ended")  # perhaps: see `Peer.is_there`
_SERVICE = "/inference.GRPCInferenceService/"


@dataclass(frozen=True, slots=True)
class Answer:
    """`content` is compared; `words` are for people."""

    status: str
    content: Any
    words: str = ""

    def agrees(self, other: "Answer") -> bool:
        return self.status == other.status and (self.content == other.content or self.status not in ("200", "OK"))


class Peer:
    """One server, by both of its transports."""

    def __init__(self, http_address: str, grpc_address: str) -> None:
        self._http_address = http_address
        self._connection: http.client.HTTPConnection | None = None
        self._channel = grpc.insecure_channel(grpc_address)

    def ask(self, request: RestRequest | GrpcRequest) -> Answer:
        if isinstance(request, RestRequest):
            return self._ask_rest(request)
        return self._ask_stream(request) if request.is_streamed else self._ask_grpc(request)

    def is_there(self) -> bool:
        """Does it still answer, within seconds?"""
        host, _, port = self._http_address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
        try:
            connection.request("GET", "/v2/health/live")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def close(self) -> None:
        self._channel.close()
        if self._connection is not None:
            self._connection.close()

    def _ask_rest(self, request: RestRequest) -> Answer:
        headers, body = request.written()
        if self._connection is None:
            host, _, port = self._http_address.rpartition(":")
            self._connection = http.client.HTTPConnection(host, int(port), timeout=_SECONDS)
        try:
            self._connection.request(request.method, request.path, body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._connection = None
            return Answer("no answer", None, repr(error))
        given = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close:
            self._connection.close()
            self._connection = None
        try:
            return _rest_answer(request, response.status, given, content)
        except (ValueError, KeyError, TypeError, struct.error, zlib.error) as error:
            return Answer(str(response.status), f"unreadable: {error!r}", content[:300].decode("latin-1"))

    def _ask_grpc(self, request: GrpcRequest) -> Answer:
        made = getattr(service_pb2, f"{request.method}Response")
        call = self._channel.unary_unary(
            _SERVICE + request.method,
            request_serializer=type(request.message).SerializeToString,
            response_deserializer=made.FromString,
        )
        try:
            response = call(request.message, timeout=_SECONDS)
        except grpc.RpcError as error:
            return Answer(error.code().name, None, error.details())
        if request.method == "ModelInfer":
            return Answer("OK", _grpc_tensors(response))
        return Answer("OK", grpc_facts(request.method, response), str(response)[:500])

    def _ask_stream(self, request: GrpcRequest) -> Answer:
        """One request in a stream of its own; a refusal is told in the answer."""
        call = self._channel.stream_stream(
            _SERVICE + "ModelStreamInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        requests: Queue[Any] = Queue()
        requests.put(request.message)
        try:
            answers = call(iter(requests.get, None), timeout=_SECONDS)
            response = next(answers)
            requests.put(None)
            more = len(list(answers))
        except (grpc.RpcError, StopIteration) as error:
            requests.put(None)
            return Answer("stream ended", None, str(error)[:300])
        if response.error_message:
            return Answer("refused in the stream", more, response.error_message)
        return Answer("OK", (_grpc_tensors(response.infer_response), more))


# -- REST -----------------------------------------------------------------------------------------------------------------


def _rest_answer(request: RestRequest, status: int, headers: dict[str, str], content: bytes) -> Answer:
    encoding = headers.get("content-encoding", "")
    if encoding:
        content = gzip.decompress(content) if encoding == "gzip" else zlib.decompress(content)
    if status != 200:
        return Answer(str(status), None, content[:300].decode("latin-1"))
    if request.method != "HEAD" and request.path.split("?")[0].endswith("/infer"):
        return Answer("200", (encoding, _rest_tensors(headers, content)))
    facts = rest_facts(request.path, json.loads(content) if content else None)
    return Answer("200", facts, content[:500].decode("latin-1"))


def _rest_tensors(headers: dict[str, str], content: bytes) -> Any:
    size = int(headers.get("inference-header-content-length", len(content)))
    document, place, tensors = json.loads(content[:size]), size, []
    for one in document["outputs"]:
        length = one.get("parameters", {}).get("binary_data_size")
        if length is None:
            data = _bytes(one["datatype"], one["data"])
        else:
            data, place = content[place : place + length], place + length
        tensors.append((one["name"], one["datatype"], tuple(one["shape"]), data, length is None))
    assert place == len(content)
    return document["model_name"], document["model_version"], document.get("id"), sorted(tensors)


def _bytes(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        return b"".join(len(each.encode()).to_bytes(4, "little") + each.encode() for each in values)
    kind = {"BOOL": "?", "FP32": "<f4", "FP64": "<f8"}.get(datatype) or datatype.lower()
    return np.array(values, kind).tobytes()


def rest_facts(path: str, document: Any) -> Any:
    """What both servers should say, without what is their own: names, times and settings."""
    if path.endswith("/config"):
        return _configuration(document)
    if path.endswith("/stats"):
        return sorted((each["name"], each["version"], sorted(each)) for each in document["model_stats"])
    if path.endswith("/index"):
        return sorted((each["name"], each.get("version", ""), each.get("state", "")) for each in document)
    if path == "/v2":
        return sorted(document)
    if isinstance(document, dict) and "platform" in document:
        return {key: value for key, value in document.items() if key != "platform"}
    return document


def _configuration(document: Any) -> Any:
    tensors = [
        (each["name"], each["data_type"], [int(size) for size in each["dims"]], each.get("reshape"))
        for each in (*document["input"], *document["output"])
    ]
    labels = [each.get("label_filename", "") for each in document["output"]]
    return document["name"], document["max_batch_size"], tensors, labels, document["version_policy"]


# -- gRPC -----------------------------------------------------------------------------------------------------------------


def _grpc_tensors(response: Any) -> Any:
    tensors = []
    for place, one in enumerate(response.outputs):
        data = response.raw_output_contents[place] if place < len(response.raw_output_contents) else None
        tensors.append((one.name, one.datatype, tuple(one.shape), data, one.HasField("contents")))
    return response.model_name, response.model_version, response.id, sorted(tensors)


def grpc_facts(method: str, response: Any) -> Any:
    document = json_format.MessageToDict(response, preserving_proto_field_name=True)
    if method == "ModelConfig":
        return _configuration({"max_batch_size": 0, **document["config"]})
    if method == "ModelStatistics":
        return sorted((each["name"], each["version"]) for each in document["model_stats"])
    if method == "RepositoryIndex":
        return sorted((each["name"], each.get("version", ""), each.get("state", "")) for each in document["models"])
    if method == "ServerMetadata":
        return sorted(document)
    return {key: value for key, value in document.items() if key != "platform"}
