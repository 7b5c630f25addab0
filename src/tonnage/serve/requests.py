"""What goes through the server, whichever way it came in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tonnage.serve.datatypes import Tensor
from tonnage.serve.errors import ServingError

now = time.perf_counter  # the clock of all requests: that of the event loop counts milliseconds

Answer: TypeAlias = "Response | ServingError"


class Holder(Protocol):
    """Where a request is until it is answered."""

    def cancel(self, request: Request) -> None: ...


@dataclass(slots=True)
class RequestedOutput:
    """`classes` asks for the names of the best so many instead of the scores."""

    name: str
    classes: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """One inference. `answer` is called once, whatever happens."""

    model: str
    version: str  # "" for the newest
    inputs: list[Tensor]
    answer: Callable[[Answer], None]
    id: str = ""
    outputs: list[RequestedOutput] | None = None  # None: all
    priority: int = 0
    timeout_seconds: float = 0.0
    client: str = ""
    arrived: float = 0.0  # by `now`, as all its times
    started: float = 0.0  # when an instance took it
    expires: float = 0.0  # when it has waited long enough; 0: never
    rows: int = 1
    key: tuple[Any, ...] = ()  # requests with equal keys can run as one batch
    size: int = 0  # bytes of its inputs, once it waits
    tries: int = 0
    deadline: Any = None  # the timer that ends its waiting
    holder: Holder | None = None
    is_waiting: bool = False  # in a queue
    is_over: bool = False

    def cancel(self) -> None:
        """Nobody waits for its answer any more."""
        if self.holder is not None and not self.is_over:
            self.holder.cancel(self)


@dataclass(slots=True)
class Response:
    """The outputs in the order of the model's configuration, or as they were asked for."""

    model: str
    version: str
    id: str
    outputs: list[Tensor]
    parameters: Mapping[str, Any] = field(default_factory=dict)
