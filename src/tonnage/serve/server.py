"""The server: its ports, its models, and how it begins and ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tonnage.errors import NotFound, UsageError
from tonnage.serve.access import Access
from tonnage.serve.budget import Budget
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.grpc_service import GrpcService, start_grpc
from tonnage.serve.http_messages import HttpLimits
from tonnage.serve.http_server import HttpServer
from tonnage.serve.instance_process import InstanceProcess
from tonnage.serve.memory_limits import MemoryLimits
from tonnage.serve.metrics_port import MetricsPort
from tonnage.serve.models import Models
from tonnage.serve.nursery import Nurseries
from tonnage.serve.polling import Poller
from tonnage.serve.repository import Repository
from tonnage.serve.request_log import RequestLog
from tonnage.serve.rest import Rest, refusal
from tonnage.serve.served_version import ServedVersion

log = logging.getLogger("tonnage.serve")
_BACKLOG = 1024
_HANDSHAKE_SECONDS = 10.0
_Result = TypeVar("_Result")
_METRICS_LIMITS = HttpLimits(most_body_bytes=64 << 10, most_connections=256, request_seconds=10.0)


class Control(StrEnum):
    """Who decides which models are loaded."""

    FIXED = "none"  # all, once
    EXPLICIT = "explicit"  # clients, and `load_models` at the beginning
    POLL = "poll"  # the folder, as it changes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    repository: Path
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    gpus: tuple[int, ...] = ()
    control: Control = Control.EXPLICIT
    load_models: tuple[str, ...] = ("*",)
    poll_seconds: float = 5.0
    drain_seconds: float = 60.0
    limits: HttpLimits = field(default_factory=HttpLimits)
    access: Access = field(default_factory=Access)
    tls: tuple[Path, Path] | None = None  # certificate and key
    log_requests: bool = False  # also those that succeed
    memory_limit_bytes: int | None = None  # of main memory, for all models; None: what the machine has


@dataclass(frozen=True, slots=True)
class Addresses:
    http: str
    grpc: str
    metrics: str


class Server:
    """`start` it, wait for its end, `stop` it."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.repository = Repository(options.repository)
        self._nurseries = Nurseries()
        make_instance = partial(InstanceProcess, nurseries=self._nurseries)
        budget = Budget(options.limits.most_held_bytes)
        make = partial(ServedVersion, make_instance=make_instance, budget=budget)
        memory = MemoryLimits(limit_bytes=options.memory_limit_bytes)
        self.models = Models(self.repository, gpus=options.gpus, memory=memory, make=make)
        self.plane = DataPlane(self.models, is_starting=True, is_explicit=options.control is Control.EXPLICIT)
        self._log = RequestLog(options.log_requests)
        self._rest = Rest(self.plane, options.limits, options.access)
        self._http = HttpServer(self._rest.handle, refusal, options.limits, self._log)
        self._metrics_port = MetricsPort(self.plane, options.access)
        self._metrics = HttpServer(self._metrics_port.handle, refusal, _METRICS_LIMITS)
        self._service = GrpcService(self.plane, options.access, self._log)
        self._listeners: list[asyncio.Server] = []
        self._sweeping: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._grpc: Any = None

    async def start(self) -> Addresses:
        """Ports are open before models are loaded, so that probes see that the server lives; it is ready when all are."""
        self.repository.names()  # raises where there is no such folder
        context = tls_context(self.options.tls) if self.options.tls else None
        http = await self._listen(self._http, self.options.http_port, context)
        metrics = await self._listen(self._metrics, self.options.metrics_port, context)
        grpc = await self._listen_grpc()
        scheme = "https" if context else "http"
        self._sweeping = asyncio.create_task(self._sweep())
        await self._load_all()
        self.plane.is_starting = False
        self._set_polling()
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return Addresses(f"{scheme}://{host}:{http}", f"{host}:{grpc}", f"{scheme}://{host}:{metrics}/metrics")

    async def drain(self) -> bool:
        """Takes no new connections and answers what has come in. Was everything answered in time?"""
        self.plane.is_draining = True
        if self._polling is not None:
            self._polling.cancel()
        await asyncio.sleep(0)  # who has connected by now is taken
        self._listeners[0].close()  # of REST; metrics are told until the end
        try:
            async with asyncio.timeout(self.options.drain_seconds):
                await asyncio.gather(self._http.drain(), self._stop_grpc(self.options.drain_seconds))
                await self.models.drain()
        except TimeoutError:
            log.error("not everything was answered in time", extra={"seconds": self.options.drain_seconds})
            return False
        return True

    async def close(self) -> None:
        """Ends everything now: ports, connections and instances."""
        for task in (self._polling, self._sweeping):
            if task is not None:
                task.cancel()
        for listener in self._listeners:
            listener.close()
        await self.models.close()
        await self._nurseries.close()
        await self._stop_grpc(0)
        self._http.abort()
        self._metrics.abort()

    def apply(self, options: ServeOptions) -> None:
        """Other options while it runs; see `reconfiguring` for what may be changed so."""
        self.options = options
        self._rest.limits = self._http.limits = options.limits
        self._rest.access = self._metrics_port.access = self._service.access = options.access
        self.plane.is_explicit = options.control is Control.EXPLICIT
        self._set_polling()

    def _set_polling(self) -> None:
        wanted = self.options.control is Control.POLL
        if wanted and self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        elif not wanted and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _stop_grpc(self, seconds: float) -> None:
        if self._grpc is not None:
            await self._grpc.stop(seconds)

    async def _listen(self, server: HttpServer, port: int, context: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                server.connection,
                self.options.host,
                port,
                backlog=_BACKLOG,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if context else None,
                reuse_address=True,
            )
        except OSError as error:
            raise UsageError(
                f"port {port} of {self.options.host} cannot be used: {error.strerror or error}",
                "choose another one; 0 takes any",
            ) from None
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def _listen_grpc(self) -> int:
        options = self.options
        self._grpc, port = await start_grpc(
            self._service, options.host, options.grpc_port, options.limits.most_body_bytes, options.tls
        )
        if not port:
            raise UsageError(
                f"port {options.grpc_port} of {options.host} cannot be used for gRPC", "choose another one; 0 takes any"
            )
        return port

    async def _load_all(self) -> None:
        """What cannot be loaded is told, and the others are served."""
        await self.models.load_all(self.wanted(self.options))

    def wanted(self, options: ServeOptions) -> list[str]:
        """The models that are loaded with these options when the server starts."""
        names = self.repository.names()
        wanted = list(names) if "*" in options.load_models or options.control is not Control.EXPLICIT else []
        return wanted + [name for name in options.load_models if name not in ("*", *wanted)]

    async def _poll(self) -> None:
        poller = Poller()
        while True:
            await asyncio.sleep(self.options.poll_seconds)
            try:
                folders = await asyncio.to_thread(self.repository.models)
            except NotFound as error:
                log.error("the folder of models cannot be looked at", extra={"reason": error.message})
                continue  # a file system that is away for a moment unloads nothing
            changed, gone = poller.changes(folders, self.models.folders)
            for name in changed:
                await self.models.try_load(name)
            for name in gone:
                await self.models.unload(name)

    async def _sweep(self) -> None:
        clock: Callable[[], float] = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(1.0)
            self._http.sweep(clock())
            self._metrics.sweep(clock())


async def serve(
    options: ServeOptions,
    ready: Callable[[Addresses], None],
    follow: Callable[[Server], Coroutine[None, None, None]] | None = None,
) -> int:
    """Until SIGTERM or SIGINT, which waits for answers; a second one does not. Returns the exit code. `follow` runs beside
    it when it is ready."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, int(number))
    server = Server(options)
    following: asyncio.Task[None] | None = None
    try:
        addresses = await _unless(signals, server.start())
        if isinstance(addresses, int):  # nothing was promised to anybody yet
            return 0
        gc.freeze()  # modules stay anyway; looking through them would stop all requests for some 30 ms each time
        ready(addresses)
        if follow is not None:
            following = asyncio.create_task(follow(server))
        await signals.get()
        log.info("the server answers what has come in, and ends")
        drained = await _unless(signals, server.drain())
        return 128 + drained if type(drained) is int else int(not drained)
    finally:
        if following is not None:
            following.cancel()
        await server.close()


async def _unless(signals: asyncio.Queue[int], work: Coroutine[Any, Any, _Result]) -> _Result | int:
    """What comes of some work; or the number of the signal that ended it before."""
    working, signalled = asyncio.create_task(work), asyncio.create_task(signals.get())
    try:
        await asyncio.wait([working, signalled], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else signalled.result()
    finally:
        for task in (working, signalled):
            task.cancel()
        await asyncio.gather(working, signalled, return_exceptions=True)


def tls_context(files: tuple[Path, Path]) -> ssl.SSLContext:
    certificate, key = files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password="")  # rather than ask for one
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{certificate} and {key} cannot be used for TLS: {error.strerror or error}") from None
    return context
