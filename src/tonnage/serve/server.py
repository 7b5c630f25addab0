"""The server: its ports, its models, and how it begins and ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tonnage.errors import TonnageError, UsageError
from tonnage.serve.access import Access
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.grpc_service import GrpcService, start_grpc
from tonnage.serve.http_connection import HttpLimits, HttpServer
from tonnage.serve.metrics_port import MetricsPort
from tonnage.serve.models import Models
from tonnage.serve.repository import Repository
from tonnage.serve.rest import Rest, refusal

log = logging.getLogger("tonnage.serve")
_BACKLOG = 1024


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
        self.models = Models(self.repository, gpus=options.gpus)
        self.plane = DataPlane(self.models)
        self._rest = Rest(self.plane, options.limits, options.access)
        self._http = HttpServer(self._rest.handle, refusal, options.limits)
        self._metrics_port = MetricsPort(self.plane, options.access)
        self._metrics = HttpServer(self._metrics_port.handle, refusal)
        self._service = GrpcService(self.plane, options.access)
        self._listeners: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._polling: asyncio.Task[None] | None = None
        self._grpc: Any = None

    async def start(self) -> Addresses:
        """Ports are open before models are loaded, so that probes see that the server lives; it is ready when all are."""
        self.repository.models()  # raises where there is no such folder
        self.plane.is_starting = True
        context = tls_context(self.options.tls) if self.options.tls else None
        http = await self._listen(self._http, self.options.http_port, context)
        metrics = await self._listen(self._metrics, self.options.metrics_port, context)
        grpc = await self._listen_grpc()
        scheme = "https" if context else "http"
        self._tasks.append(asyncio.create_task(self._sweep()))
        await self._load_all()
        self.plane.is_starting = False
        self._set_polling()
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return Addresses(f"{scheme}://{host}:{http}", f"{host}:{grpc}", f"{scheme}://{host}:{metrics}/metrics")

    async def stop(self) -> None:
        """Takes no new connections, answers what has come in, and ends all instances."""
        self.plane.is_draining = True
        for task in (*self._tasks, *([self._polling] if self._polling else [])):
            task.cancel()
        for listener in self._listeners:
            listener.close()
        self._http.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.drain_seconds):
                await asyncio.gather(self._http.idle(), self._stop_grpc())
                await self.models.drain()
        await self.models.close()
        self._metrics.drain()

    def apply(self, options: ServeOptions) -> None:
        """Other options while it runs; see `reconfiguring` for what may be changed so."""
        self.options = options
        self._rest.limits = self._http.limits = options.limits
        self._rest.access = self._metrics_port.access = self._service.access = options.access
        self._set_polling()

    def _set_polling(self) -> None:
        wanted = self.options.control is Control.POLL
        if wanted and self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        elif not wanted and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _stop_grpc(self) -> None:
        if self._grpc is not None:
            await self._grpc.stop(self.options.drain_seconds)

    async def _listen(self, server: HttpServer, port: int, context: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                server.connection, self.options.host, port, backlog=_BACKLOG, ssl=context, reuse_address=True
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
        for name in self.wanted(self.options):
            await self.try_load(name)

    def wanted(self, options: ServeOptions) -> list[str]:
        """The models that are loaded with these options when the server starts."""
        names = self.repository.models()
        wanted = list(names) if "*" in options.load_models or options.control is not Control.EXPLICIT else []
        return wanted + [name for name in options.load_models if name not in ("*", *wanted)]

    async def try_load(self, name: str) -> None:
        try:
            await self.models.load(name)
        except TonnageError as error:
            log.error("the model cannot be loaded", extra={"model": name, "reason": error.message})

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.options.poll_seconds)
            changed, gone = self.models.changes()
            for name in changed:
                await self.try_load(name)
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
) -> None:
    """Until SIGTERM or SIGINT; a second one does not wait for answers. `follow` runs beside it when it is ready."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = Server(options)
    starting = asyncio.create_task(server.start())
    waiting = asyncio.create_task(stopped.wait())
    beside: list[asyncio.Task[None]] = []
    await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
    try:
        if not stopped.is_set() or starting.done():
            ready(await starting)
            if follow is not None:
                beside.append(asyncio.create_task(follow(server)))
            await waiting
    finally:
        for task in beside:
            task.cancel()
        starting.cancel()
        waiting.cancel()
        await server.stop()


def tls_context(files: tuple[Path, Path]) -> ssl.SSLContext:
    certificate, key = files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{certificate} and {key} cannot be used for TLS: {error.strerror or error}") from None
    return context
