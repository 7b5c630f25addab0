"""What a server is told, from its command line and from the server part of service.yaml, before anything is looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import Unreachable, UsageError
from tonnage.serve.service_file import SECRET, Service, read_service

if TYPE_CHECKING:
    from tonnage.serve.server import ServeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """By the names of the options of `tonnage serve`."""

    models: Path | None = None
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    device: str = "cpu"
    control: str = "explicit"
    load_model: tuple[str, ...] = ("*",)
    poll_seconds: float = 5.0
    access: Path | None = None
    rate_limit: float = 0.0
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    body_limit: int = 1 << 30  # bytes
    in_flight_limit: int = 4 << 30
    connection_limit: int = 10_000
    memory_limit: int | None = None
    drain_seconds: float = 60.0
    log_format: str = "text"
    log_requests: bool = False

    def options(self) -> ServeOptions:
        """Reads the files that are named; raises `TonnageError`."""
        from tonnage.serve.access import read_access
        from tonnage.serve.http_messages import HttpLimits
        from tonnage.serve.server import Control, ServeOptions

        if self.models is None:
            raise UsageError("no models are named", "tonnage serve FOLDER, or tonnage serve --config service.yaml")
        if self.control not in tuple(Control):
            raise UsageError(f"--control {self.control} is not known", f"one of {', '.join(Control)}")
        return ServeOptions(
            repository=self.models,
            host=self.host,
            http_port=self.http_port,
            grpc_port=self.grpc_port,
            metrics_port=self.metrics_port,
            gpus=gpus_of(self.device),
            control=Control(self.control),
            load_models=self.load_model,
            poll_seconds=self.poll_seconds,
            drain_seconds=self.drain_seconds,
            limits=HttpLimits(
                most_body_bytes=self.body_limit,
                most_held_bytes=self.in_flight_limit,
                most_connections=self.connection_limit,
            ),
            access=read_access(self.access, self.rate_limit),
            tls=_tls(self.tls_certificate, self.tls_key),
            log_requests=self.log_requests,
            memory_limit_bytes=self.memory_limit,
        )


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """The command line, and a file for what the command line does not say."""

    typed: ServeSettings
    said: frozenset[str] = frozenset()  # options that were typed, which win over the file
    file: Path | None = None

    def read(self) -> ServeSettings:
        if self.file is None:
            return self.typed
        found = settings_of(read_service(self.file))
        return replace(self.typed, **{name: value for name, value in found.items() if name not in self.said})


def settings_of(service: Service) -> dict[str, Any]:
    """The server part of a service file, by the names of options."""
    server, ports = service.file.server, service.file.ports
    kind, place = service.models
    if kind in ("pvc", "node"):
        raise service.error(("models",), "is in a cluster", "name a folder, or deploy it: tonnage deploy")
    if (server.access or "").startswith(SECRET) or (server.tls and server.tls.secret):
        raise service.error(("server",), "names a Secret of a cluster", "name files, or deploy it: tonnage deploy")
    tls = server.tls
    return {
        "models": Path(place),
        "host": server.host,
        "http_port": ports.http,
        "grpc_port": ports.grpc,
        "metrics_port": ports.metrics,
        "device": server.device,
        "control": server.control,
        "load_model": tuple(server.load),
        "poll_seconds": server.poll_seconds,
        "access": service.path_of(server.access) if server.access else None,
        "rate_limit": server.rate_limit,
        "tls_certificate": service.path_of(tls.certificate) if tls and tls.certificate else None,
        "tls_key": service.path_of(tls.key) if tls and tls.key else None,
        "body_limit": server.body_limit,
        "in_flight_limit": server.in_flight_limit,
        "connection_limit": server.connection_limit,
        "memory_limit": server.memory_limit,
        "drain_seconds": server.drain_seconds,
        "log_format": server.log_format,
        "log_requests": server.log_requests,
    }


def gpus_of(device: str) -> tuple[int, ...]:
    """None for the processor; raises `UsageError`, or `Unreachable` where there is no driver."""
    from tonnage.hardware.probe import probe

    kind, _, numbers = device.partition(":")
    if device == "cpu":
        return ()
    if kind != "cuda" or not all(number.isdigit() for number in numbers.split(",") if numbers):
        raise UsageError(f"--device {device} is no device", "for example: --device cuda, or --device cuda:0,2")
    try:
        here = len(probe().gpus)
    except Unreachable as error:
        raise Unreachable(f"--device {device}: {error.message}", "--device cpu needs none") from None
    chosen = tuple(int(number) for number in numbers.split(",")) if numbers else tuple(range(here))
    if not chosen or max(chosen) >= here:
        raise UsageError(f"--device {device}: this machine has {here} GPUs", "--device cpu needs none")
    return chosen


def _tls(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs both --tls-certificate and --tls-key")
    return certificate, key
