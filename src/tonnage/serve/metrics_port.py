"""The port that Prometheus asks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tonnage.errors import TonnageError
from tonnage.serve.access import Access
from tonnage.serve.data_plane import DataPlane
from tonnage.serve.errors import UnknownThing, WrongMethod
from tonnage.serve.http_messages import HttpRequest, Reply
from tonnage.serve.metrics import CONTENT_TYPE, render
from tonnage.serve.rest import refusal


@dataclass(slots=True)
class MetricsPort:
    plane: DataPlane
    access: Access

    def handle(self, request: HttpRequest, reply: Reply) -> None:
        try:
            token = request.headers.get(b"authorization", b"").decode("latin-1")
            self.access.check("metrics", token, request.client, asyncio.get_running_loop().time())
            if request.path != "/metrics":
                raise UnknownThing(f"there is no {request.path} here; the metrics are at /metrics")
            if request.method != "GET":
                raise WrongMethod(f"{request.path} is called with GET")
            reply(200, {"Content-Type": CONTENT_TYPE}, render(self.plane).encode())
        except TonnageError as error:
            reply(*refusal(error))
