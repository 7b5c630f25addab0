"""How requests end: each is answered once, counted, and what it held is free again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tonnage.serve.budget import Budget
from tonnage.serve.errors import ServingError
from tonnage.serve.ordering import Ordering
from tonnage.serve.requests import Answer, Request, now
from tonnage.serve.statistics import Statistics

log = logging.getLogger("tonnage.serve")


class Answering:
    """`hold` a request when it begins to wait, `answer` it whatever happens."""

    def __init__(self, statistics: Statistics, budget: Budget) -> None:
        self.ordering: Ordering | None = None  # where answers keep the order of their requests
        self.on_answer: Callable[[], None] | None = None
        self._statistics, self._budget = statistics, budget

    def hold(self, request: Request) -> None:
        """Raises `Busy` where the server holds too much already."""
        size = 0
        for tensor in request.inputs:
            size += len(tensor.data)
        self._budget.take(size)
        request.size = size

    def refuse(self, request: Request, error: ServingError) -> None:
        """It cannot wait, which its client is told by an exception."""
        self._budget.give(request.size)
        request.size = 0
        self._statistics.failed(error, 0.0)

    def answer(self, request: Request, answer: Answer) -> None:
        if request.is_over:
            return
        request.is_over = True
        if request.deadline is not None:
            request.deadline.cancel()
        if self.ordering is None:
            self._give(request, answer)
        else:
            for each in self.ordering.release(request, answer):
                self._give(*each)

    def _give(self, request: Request, answer: Answer) -> None:
        self._budget.give(request.size)
        seconds = now() - request.arrived
        if isinstance(answer, ServingError):
            self._statistics.failed(answer, seconds)
        else:
            self._statistics.answered(seconds)
        try:
            request.answer(answer)
        except Exception:  # whatever is wrong with one answer, the others of its batch are given
            log.exception("an answer cannot be given", extra={"model": request.model, "request": request.id})
            request.answer(ServingError("the server failed; its log says why"))
        if self.on_answer is not None:
            self.on_answer()
