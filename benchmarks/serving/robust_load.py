"""Clients that notice everything: each request has an id and numbers of its own, and its answer must be that of this
very request."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from robust_rig import COLUMNS


class NotTaken(Exception):
    """The connection could not be made: nothing was sent."""


class NoAnswer(Exception):
    """A request was sent, and the connection ended without an answer."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_last(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


class Connection:
    """One HTTP connection, opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, headers: str = "") -> Answer:
        reader, writer = await self._open()
        head = f"POST {path} HTTP/1.1\r\nHost: here\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        try:
            writer.write(head.encode() + body)
            answer = await read_answer(reader)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self.close()
            raise NoAnswer(type(error).__name__) from error
        if answer.is_last:
            self.close()
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError as error:
                raise NotTaken(str(error)) from error
        return self._streams


async def read_answer(reader: asyncio.StreamReader, *, has_body: bool = True) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if head[0].split()[1] == "100":  # go on; the answer comes later
        return await read_answer(reader, has_body=has_body)
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")) if has_body else 0)
    return Answer(int(head[0].split()[1]), headers, body)


@dataclass
class Load:
    """Asks the model `add`, again and again; `pause` seconds after each answer make it less than it could be."""

    port: int
    clients: int = 8
    pause: float = 0.0
    is_over: Callable[[], bool] = lambda: False
    stops_when_refused: bool = False  # a connection that is not taken ends its client
    outcomes: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)  # by id
    sent: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(self.clients)))

    @property
    def unanswered(self) -> int:
        return len(self.sent - self.answered.keys())

    @property
    def doubled(self) -> int:
        return sum(count > 1 for count in self.answered.values())

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0

    async def _client(self) -> None:
        connection = Connection(self.port)
        try:
            while not self.is_over():
                if not await self._ask(connection) and self.stops_when_refused:
                    return
                if self.pause:
                    await asyncio.sleep(self.pause)
        finally:
            connection.close()

    async def _ask(self, connection: Connection) -> bool:
        """Was it taken?"""
        number = next(self._numbers)
        name, value = f"r{number}", float(number % 100_000)
        rows = [[value + column for column in range(COLUMNS)]]
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "data": rows}
        body = json.dumps({"id": name, "inputs": [tensor]}).encode()
        began = time.perf_counter()
        try:
            answer = await connection.post("/v2/models/add/infer", body)
        except NotTaken:
            self.outcomes["not taken"] += 1
            return False
        except NoAnswer as error:
            self.sent.add(name)
            self._problem("lost", f"{name}: {error}")
            return True
        self.sent.add(name)
        self.seconds.append(time.perf_counter() - began)
        self._check(name, value, answer)
        return True

    def _check(self, name: str, value: float, answer: Answer) -> None:
        document = json.loads(answer.body)
        if answer.status != 200:
            self.answered[name] += 1
            self._problem(f"status {answer.status}", document.get("error", ""))
            return
        self.answered[document.get("id", "without an id")] += 1
        wanted = [value + column + 1 for column in range(COLUMNS)]
        if document["id"] != name or document["outputs"][0]["data"] != wanted:
            self._problem("mixed", f"{name}: {document}")
        else:
            self.outcomes["right"] += 1

    def _problem(self, kind: str, told: str) -> None:
        self.outcomes[kind] += 1
        if len(self.problems) < 10:
            self.problems.append(f"{kind}: {told}"[:300])
