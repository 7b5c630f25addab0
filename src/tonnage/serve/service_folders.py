"""The files that the server in a container reads: its own service.yaml, with the paths and ports of the container, tokens
and certificates."""

from __future__ import annotations

from typing import Any

import yaml

from tonnage.engines.service import Folder
from tonnage.serve.access import read_access
from tonnage.serve.service_file import SECRET, Service
from tonnage.serve.service_models import ServerSection

HTTP, GRPC, METRICS = 8000, 8001, 8002  # inside the container, whatever clients see
CONFIGURATION, ACCESS, TLS, MODELS = "/etc/tonnage", "/etc/tonnage-access", "/etc/tonnage-tls", "/models"
FILE = f"{CONFIGURATION}/service.yaml"


def folders_of(service: Service, is_cluster: bool, models: str) -> tuple[Folder, ...]:
    """`models` is where they are in the container."""
    server = service.file.server
    folders = [Folder(target=CONFIGURATION, files={"service.yaml": _inside(service, models).encode()})]
    if server.access is not None:
        folders.append(_access(service, server.access, is_cluster))
    if server.tls is not None:
        folders.append(_tls(service, is_cluster))
    return tuple(folders)


def _access(service: Service, access: str, is_cluster: bool) -> Folder:
    _check_secret(service, "access", access.startswith(SECRET), is_cluster)
    if is_cluster:
        return Folder(target=ACCESS, secret=access.removeprefix(SECRET), is_private=True)
    path = service.path_of(access)
    if "health" not in read_access(path).public:
        raise service.error(
            ("server", "access"), "health is not public there, and nobody could watch the service", "public: [health]"
        )
    return Folder(target=ACCESS, files={"access.yaml": path.read_bytes()}, is_private=True)


def _tls(service: Service, is_cluster: bool) -> Folder:
    tls = service.file.server.tls
    assert tls is not None
    _check_secret(service, "tls", tls.secret is not None, is_cluster)
    if tls.secret is not None:
        return Folder(target=TLS, secret=tls.secret, is_private=True)
    files = {}
    for name, field, text in (("tls.crt", "certificate", tls.certificate), ("tls.key", "key", tls.key)):
        path = service.path_of(text or "")
        if not path.is_file():
            raise service.error(("server", "tls", field), f"there is no file {path}")
        files[name] = path.read_bytes()
    return Folder(target=TLS, files=files, is_private=True)


def _check_secret(service: Service, field: str, is_secret: bool, is_cluster: bool) -> None:
    if is_cluster and not is_secret:
        hint = "kubectl create secret makes one; access: secret:NAME, tls: {secret: NAME}"
        raise service.error(("server", field), "is a file of this machine: a cluster needs a Secret", hint)
    if is_secret and not is_cluster:
        raise service.error(("server", field), "is a Secret of a cluster", "name a file of this machine")


def _inside(service: Service, models: str) -> str:
    """The file as the server in the container reads it: with the paths, the address and the ports that are there."""
    server = service.file.server
    inside: dict[str, Any] = {"host": "0.0.0.0", "control": server.control, "load": list(server.load)}
    inside |= {"poll_seconds": server.poll_seconds, "device": server.device, "rate_limit": server.rate_limit}
    inside |= {"body_limit": f"{server.body_limit}B", "drain_seconds": server.drain_seconds}
    inside |= {"log_format": server.log_format, "log_requests": server.log_requests}
    inside |= {"in_flight_limit": f"{server.in_flight_limit}B", "connection_limit": server.connection_limit}
    if server.memory_limit is not None:
        inside["memory_limit"] = f"{server.memory_limit}B"
    if server.access is not None:
        inside["access"] = f"{ACCESS}/access.yaml"
    if server.tls is not None:
        inside["tls"] = {"certificate": f"{TLS}/tls.crt", "key": f"{TLS}/tls.key"}
    assert set(inside) >= set(ServerSection.model_fields) - {"access", "tls", "memory_limit"}
    ports = {"http": HTTP, "grpc": GRPC, "metrics": METRICS}
    return yaml.safe_dump({"models": models, "ports": ports, "server": inside}, sort_keys=False)
