"""Answers in the order of their requests, where a configuration asks for that (`preserve_ordering`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tonnage.serve.requests import Answer, Request


class Ordering:
    """Who is done before those that came before it waits for them."""

    def __init__(self) -> None:
        self._line: deque[Request] = deque()
        self._done: dict[int, Answer] = {}  # by the identity of requests in the line

    def add(self, request: Request) -> None:
        self._line.append(request)

    def release(self, request: Request, answer: Answer) -> Iterator[tuple[Request, Answer]]:
        """All that can be answered now that this one can."""
        self._done[id(request)] = answer
        while self._line and id(self._line[0]) in self._done:
            first = self._line.popleft()
            yield first, self._done.pop(id(first))
