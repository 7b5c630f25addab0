"""What a client is told when a request cannot be answered, with the status of both transports.

ServingError           500  INTERNAL             the model or the server failed
|-- InvalidRequest     400  INVALID_ARGUMENT     the request is wrong; the message names the field
|   |-- LoadFailed     400  INVALID_ARGUMENT     a model cannot be loaded; what ran before still runs
|-- Unauthorized       401  UNAUTHENTICATED      no token, or none that is known
|-- Forbidden          403  PERMISSION_DENIED    not with this token
|-- UnknownThing       404  NOT_FOUND            no such model, version, region or route
|-- WrongMethod        405  UNIMPLEMENTED        a route that is called otherwise
|-- TooSlow            408  DEADLINE_EXCEEDED    the client did not send its request in time
|-- TooLarge           413  RESOURCE_EXHAUSTED   more bytes than the server takes
|-- NoRoom             422  RESOURCE_EXHAUSTED   a model would not fit into memory; the message has the numbers
|-- Busy               429  UNAVAILABLE          the queue is full, or the client asks too often
|-- Cancelled          499  CANCELLED            the client has gone
|-- Unsupported        501  UNIMPLEMENTED        part of the protocol, but not done here
|-- Unavailable        503  UNAVAILABLE          not ready, stopping, or too late to be worth an answer
"""

from __future__ import annotations

from typing import ClassVar

from tonnage.errors import TonnageError


class ServingError(TonnageError):
    """The model or the server failed."""

    grpc_status: ClassVar[str] = "INTERNAL"


class InvalidRequest(ServingError):
    """The request is wrong; the message names the field."""

    http_status, grpc_status = 400, "INVALID_ARGUMENT"


class LoadFailed(InvalidRequest):
    """A model cannot be loaded; what ran before still runs."""


class Unauthorized(ServingError):
    """No token, or none that is known."""

    http_status, grpc_status = 401, "UNAUTHENTICATED"


class Forbidden(ServingError):
    """Not with this token."""

    http_status, grpc_status = 403, "PERMISSION_DENIED"


class UnknownThing(ServingError):
    """No such model, version, region or route."""

    http_status, grpc_status = 404, "NOT_FOUND"


class WrongMethod(ServingError):
    """A route that is called otherwise."""

    http_status, grpc_status = 405, "UNIMPLEMENTED"


class TooSlow(ServingError):
    """The client did not send its request in time."""

    http_status, grpc_status = 408, "DEADLINE_EXCEEDED"


class TooLarge(ServingError):
    """More bytes than the server takes."""

    http_status, grpc_status = 413, "RESOURCE_EXHAUSTED"


class NoRoom(ServingError):
    """A model would not fit into memory; the message has the numbers."""

    http_status, grpc_status = 422, "RESOURCE_EXHAUSTED"


class Busy(ServingError):
    """The queue is full, or the client asks too often."""

    http_status, grpc_status = 429, "UNAVAILABLE"


class Cancelled(ServingError):
    """The client has gone; it is only counted, since nobody is there to be told."""

    http_status, grpc_status = 499, "CANCELLED"


class Unsupported(ServingError):
    """Part of the protocol, but not done here."""

    http_status, grpc_status = 501, "UNIMPLEMENTED"


class Unavailable(ServingError):
    """Not ready, stopping, or too late to be worth an answer."""

    http_status, grpc_status = 503, "UNAVAILABLE"
