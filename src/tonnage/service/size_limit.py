"""Refuses request bodies that are larger than any real one, before they are read into memory."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 512 * 1024


class _TooLarge(Exception):
    pass


class SizeLimit:
    """Counts what arrives, whatever the length that the client has announced."""

    def __init__(self, app: ASGIApp, most_bytes: int = MOST_BYTES) -> None:
        self.app, self.most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self.most_bytes:
            await self._refuse(scope, receive, send)
            return
        arrived, began = 0, False

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > self.most_bytes:
                raise _TooLarge
            return message

        async def noticed(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self.app(scope, counted, noticed)
        except _TooLarge:
            if not began:
                await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = {"message": f"a request may have {self.most_bytes:,} bytes", "hint": "send indicators, not traces"}
        await JSONResponse(body, status_code=413)(scope, receive, send)
