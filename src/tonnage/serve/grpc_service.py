"""The gRPC side of the server: each method is a function of the data plane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from tonnage.errors import TonnageError
from tonnage.serve.access import Access
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.errors import InvalidRequest, ServingError, UnknownThing, Unsupported
from tonnage.serve.grpc_codec import GrpcCodec
from tonnage.serve.grpc_messages import SERVICE, message
from tonnage.serve.request_log import RequestLog
from tonnage.serve.requests import Answer

log = logging.getLogger("tonnage.serve")
_MOST_STREAMED = 128  # requests of one stream that are not answered yet
_MOST_CALLS = 10_000  # at once
_GROUPS = {
    "ServerLive": "health", "ServerReady": "health", "ModelReady": "health", "ModelInfer": "inference",
    "ModelStreamInfer": "inference", "ModelStatistics": "statistics", "RepositoryIndex": "repository",
    "RepositoryModelLoad": "repository", "RepositoryModelUnload": "repository",
}  # fmt: skip
Method = Callable[[Any], "Any | Awaitable[Any]"]


@dataclass(slots=True)
class GrpcService:
    plane: DataPlane
    access: Access = field(default_factory=Access)
    log: RequestLog = field(default_factory=RequestLog)
    _codec: GrpcCodec = field(init=False)

    def __post_init__(self) -> None:
        self._codec = GrpcCodec(self.plane.regions)

    def handlers(self) -> Any:
        """For `add_generic_rpc_handlers`."""
        unary = {
            "ServerLive": self._live, "ServerReady": self._ready, "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata, "ModelMetadata": self._model_metadata, "ModelInfer": self._infer,
            "ModelConfig": self._configuration, "ModelStatistics": self._statistics, "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load, "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": self._region_status, "SystemSharedMemoryRegister": self._register,
            "SystemSharedMemoryUnregister": self._unregister, "CudaSharedMemoryStatus": self._cuda_status,
            "CudaSharedMemoryRegister": self._cuda_register, "CudaSharedMemoryUnregister": self._cuda_unregister,
        }  # fmt: skip
        methods = {name: self._unary(name, method) for name, method in unary.items()}
        methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=_reader("ModelInferRequest"),
            response_serializer=message("ModelStreamInferResponse").SerializeToString,
        )
        return (grpc.method_handlers_generic_handler(SERVICE, methods),)

    def _unary(self, name: str, method: Method) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            try:
                if isinstance(request, InvalidRequest):
                    raise request
                self._check_access(name, context)
                result = method(request)
                answered = await result if isinstance(result, Awaitable) else result
                if self.log.every:
                    self.log.grpc(name, _address(context.peer()), getattr(request, "id", ""), "OK")
                return answered
            except TonnageError as error:
                await context.abort(*self._refused(error, name, request, context))
            except Exception as error:
                if isinstance(error, grpc.aio.BaseError):
                    raise
                log.exception("a request failed", extra={"method": name})
                await context.abort(grpc.StatusCode.INTERNAL, "the server failed; its log says why")

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=_reader(f"{name}Request"),
            response_serializer=message(f"{name}Response").SerializeToString,
        )

    def _refused(self, error: TonnageError, method: str, request: Any, context: Any) -> tuple[grpc.StatusCode, str]:
        status, told = refusal(error)
        self.log.grpc(method, _address(context.peer()), getattr(request, "id", ""), status.name, told)
        return status, told

    def _check_access(self, name: str, context: Any) -> str:
        if self.access.is_open:
            return ""
        given = {key.lower(): value for key, value in context.invocation_metadata()}
        group = _GROUPS.get(name, "shared-memory" if "SharedMemory" in name else "metadata")
        token = given.get("authorization", "")
        return self.access.check(group, token if isinstance(token, str) else "", _address(context.peer()), _now())

    # -- inference ----------------------------------------------------------------------------------------------------

    async def _infer(self, given: Any) -> Any:
        """The response. Where the client goes before it is there, the request does not wait any longer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answer(result: Answer) -> None:
            if future.done():  # the client has gone
                return
            if isinstance(result, ServingError):
                future.set_exception(result)
                return
            try:
                future.set_result(self._codec.encode(result, spans))
            except TonnageError as error:
                future.set_exception(error)
            except Exception:
                log.exception("a response cannot be written", extra={"model": result.model})
                future.set_exception(ServingError("the server failed; its log says why"))

        if isinstance(given, InvalidRequest):
            raise given
        request, spans = self._codec.decode(given, answer)
        self.plane.infer(request)
        try:
            return await future
        except asyncio.CancelledError:
            request.cancel()
            raise

    async def _stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answers come in the order of the requests; one that is wrong does not end the stream."""
        made = message("ModelStreamInferResponse")
        answers: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue(_MOST_STREAMED)
        tasks: set[asyncio.Task[Any]] = set()

        async def read() -> None:
            try:
                async for request in requests:
                    task = asyncio.create_task(self._streamed(request, context))
                    tasks.add(task)
                    await answers.put(task)
            except Exception:
                log.exception("a stream cannot be read")
            await answers.put(None)

        reading = asyncio.create_task(read())
        try:
            while (task := await answers.get()) is not None:
                yield made(**await task)
                tasks.discard(task)
        finally:  # where the client has gone, nobody waits for what is left
            for each in (reading, *tasks):
                each.cancel()

    async def _streamed(self, request: Any, context: Any) -> dict[str, Any]:
        try:
            self._check_access("ModelStreamInfer", context)
            return {"infer_response": await self._infer(request)}
        except TonnageError as error:
            told = self._refused(error, "ModelStreamInfer", request, context)[1]
        except Exception:
            log.exception("a request failed", extra={"method": "ModelStreamInfer"})
            told = "the server failed; its log says why"
        return {"error_message": told, "infer_response": message("ModelInferResponse")(id=getattr(request, "id", ""))}

    # -- everything else ----------------------------------------------------------------------------------------------

    def _live(self, _: Any) -> Any:
        return message("ServerLiveResponse")(live=True)

    def _ready(self, _: Any) -> Any:
        return message("ServerReadyResponse")(ready=self.plane.is_ready)

    def _model_ready(self, given: Any) -> Any:
        return message("ModelReadyResponse")(ready=self.plane.model_is_ready(given.name, given.version))

    def _server_metadata(self, _: Any) -> Any:
        return message("ServerMetadataResponse")(**self.plane.server_metadata())

    def _model_metadata(self, given: Any) -> Any:
        return message("ModelMetadataResponse")(**self.plane.model_metadata(given.name, given.version))

    def _configuration(self, given: Any) -> Any:
        document = {"config": self.plane.model_configuration(given.name, given.version)}
        return json_format.ParseDict(document, message("ModelConfigResponse")(), ignore_unknown_fields=True)

    def _statistics(self, given: Any) -> Any:
        document = {"model_stats": self.plane.statistics(given.name, given.version)}
        return json_format.ParseDict(document, message("ModelStatisticsResponse")(), ignore_unknown_fields=True)

    def _index(self, given: Any) -> Any:
        return message("RepositoryIndexResponse")(models=self.plane.index(ready_only=given.ready))

    async def _load(self, given: Any) -> Any:
        await self.plane.load(given.model_name, _parameters(given))
        return message("RepositoryModelLoadResponse")()

    async def _unload(self, given: Any) -> Any:
        await self.plane.unload(given.model_name, _parameters(given))
        return message("RepositoryModelUnloadResponse")()

    def _region_status(self, given: Any) -> Any:
        made = message("SystemSharedMemoryStatusResponse")()
        for region in self.plane.regions.status(given.name):
            json_format.ParseDict(region.to_json(), made.regions[region.name])
        return made

    def _register(self, given: Any) -> Any:
        self.plane.regions.register(given.name, given.key, given.offset, given.byte_size)
        return message("SystemSharedMemoryRegisterResponse")()

    def _unregister(self, given: Any) -> Any:
        self.plane.regions.unregister(given.name)
        return message("SystemSharedMemoryUnregisterResponse")()

    def _cuda_status(self, given: Any) -> Any:
        if given.name:
            raise UnknownThing(f"no shared memory region {given.name!r} of CUDA is registered")
        return message("CudaSharedMemoryStatusResponse")()

    def _cuda_register(self, _: Any) -> Any:
        raise Unsupported("shared memory of CUDA is not taken; use system shared memory")

    def _cuda_unregister(self, _: Any) -> Any:
        return message("CudaSharedMemoryUnregisterResponse")()


async def start_grpc(
    service: GrpcService, host: str, port: int, most_bytes: int, tls: tuple[Path, Path] | None
) -> tuple[Any, int]:
    """The server and its port; 0 where it cannot be had."""
    options = [
        ("grpc.max_receive_message_length", min(most_bytes, 2**31 - 1)),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_MOST_CALLS)
    server.add_generic_rpc_handlers(service.handlers())
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            certificate, key = (file.read_bytes() for file in tls)
            bound = server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
    except RuntimeError:
        bound = 0
    if bound:
        await server.start()
    return server, bound


def _reader(name: str) -> Callable[[bytes], Any]:
    """Of messages; what is none becomes the error that its client is told, since gRPC would call it our own failure."""
    parse = message(name).FromString

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return InvalidRequest(f"the message is no {name}: its bytes cannot be read as one")

    return read


def refusal(error: TonnageError) -> tuple[grpc.StatusCode, str]:
    name = error.grpc_status if isinstance(error, ServingError) else _status_of(error.http_status)
    return grpc.StatusCode[name], f"{error.message} ({error.hint})" if error.hint else error.message


def _status_of(http_status: int) -> str:
    """Of errors that are not this server's own, such as a model file that cannot be read."""
    return {404: "NOT_FOUND", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}.get(
        http_status, "INVALID_ARGUMENT" if http_status < 500 else "INTERNAL"
    )


def _parameters(given: Any) -> dict[str, Any]:
    found = {}
    for name, parameter in given.parameters.items():
        chosen = parameter.WhichOneof("choice")
        found[name] = getattr(parameter, chosen) if chosen else None
    return found


def _address(peer: str) -> str:
    """`ipv4:127.0.0.1:51234` as `127.0.0.1`."""
    return peer.partition(":")[2].rpartition(":")[0] or peer


def _now() -> float:
    return asyncio.get_running_loop().time()
