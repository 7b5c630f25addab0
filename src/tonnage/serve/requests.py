"""What goes through the server, whichever way it came in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tonnage.serve.datatypes import Tensor
from tonnage.serve.errors import ServingError

now = time.perf_counter  # the clock of all requests: that of the event loop counts milliseconds

Answer: TypeAlias = "Response | ServingError"


@dataclass(frozen=True, slots=True)
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
    rows: int = 1
    key: tuple[Any, ...] = ()  # requests with equal keys can run as one batch
    tries: int = 0
    deadline: Any = None  # the timer that ends its waiting
    is_over: bool = False

    @property
    def size(self) -> int:
        return sum(len(tensor.data) for tensor in self.inputs)


@dataclass(frozen=True, slots=True)
class Response:
    """The outputs in the order of the model's configuration, or as they were asked for."""

    model: str
    version: str
    id: str
    outputs: list[Tensor]
    parameters: Mapping[str, Any] = field(default_factory=dict)
