"""Refuses request bodies that are larger than any real one, before they are read into memory."""

from __future__ import annotations

from fastapi import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 512 * 1024


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
            body = {"message": self._text(), "hint": "send indicators, not traces"}
            await JSONResponse(body, status_code=413)(scope, receive, send)
            return
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > self.most_bytes:
                raise HTTPException(413, self._text())  # FastAPI passes this one on while it reads a body
            return message

        await self.app(scope, counted, send)

    def _text(self) -> str:
        return f"a request may have {self.most_bytes:,} bytes"
