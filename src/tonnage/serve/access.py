"""Who may do what: bearer tokens for groups of routes, and how often each client may ask."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tonnage.hardware.yaml_errors import Located, invalid_file
from tonnage.hardware.yaml_lines import read_document
from tonnage.serve.errors import Busy, Forbidden, Unauthorized

Group = Literal["health", "metadata", "inference", "repository", "statistics", "shared-memory", "metrics", "page"]
GROUPS: tuple[Group, ...] = get_args(Group)
_MOST_CLIENTS = 10_000
_LEAST_LETTERS = 16  # of a token


class _Client(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    token: str = Field(min_length=_LEAST_LETTERS, repr=False)
    routes: list[Group] = list(GROUPS)
    requests_second: Annotated[float, Field(gt=0)] | None = None


class _AccessFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    public: list[Group] = ["health"]
    clients: list[_Client]


@dataclass(slots=True)
class Bucket:
    """So many requests a second, and as many at once."""

    rate: float
    left: float
    since: float

    def take(self, now: float) -> bool:
        self.left = min(self.left + (now - self.since) * self.rate, max(self.rate, 1.0))
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


@dataclass(slots=True)
class Access:
    """Without clients everybody may do everything."""

    public: frozenset[str] = frozenset(GROUPS)
    clients: dict[bytes, _Client] = field(default_factory=dict)  # by the digest of their token
    requests_second: float = 0.0  # of a client that has no limit of its own; 0: no limit
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    @property
    def is_open(self) -> bool:
        """Nothing has to be looked at."""
        return not self.clients and not self.requests_second

    def says_the_same(self, other: Access) -> bool:
        """Whatever clients have used up of it."""
        mine, others = ((a.public, a.clients, a.requests_second) for a in (self, other))
        return mine == others

    def check(self, group: str, authorization: str, address: str, now: float) -> str:
        """Who it is; raises `Unauthorized`, `Forbidden` or `Busy`."""
        client = self._known(authorization) if self.clients else None
        if self.clients and group not in self.public:
            if client is None:
                raise Unauthorized("this needs a bearer token that is known here", "Authorization: Bearer TOKEN")
            if group not in client.routes:
                raise Forbidden(f"the token of {client.name} is not for {group}")
        name = client.name if client is not None else address
        if group == "inference":
            self._limit(name, (client.requests_second if client is not None else None) or self.requests_second, now)
        return name

    def _known(self, authorization: str) -> _Client | None:
        kind, _, token = authorization.partition(" ")
        return self.clients.get(digest(token.strip())) if kind.lower() == "bearer" and token else None

    def _limit(self, name: str, rate: float, now: float) -> None:
        if not rate:
            return
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(rate, max(rate, 1.0), now)
            if len(self._buckets) > _MOST_CLIENTS:  # the one that has not asked for the longest time
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        if not bucket.take(now):
            raise Busy(f"{name} may ask {rate:g} times a second", "try again later")


def read_access(path: Path | None, requests_second: float = 0.0) -> Access:
    """From a YAML file: `clients` with name, token, routes and requests_second; `public` are routes without a token."""
    if path is None:
        return Access(requests_second=requests_second)
    document = read_document(path)
    try:
        file = _AccessFile.model_validate(document.value)
    except ValidationError as error:
        _hide_tokens(document, error)
        raise invalid_file(document, error, (_AccessFile, _Client)) from None
    clients: dict[bytes, _Client] = {}
    for number, client in enumerate(file.clients):
        if digest(client.token) in clients:
            raise document.error(("clients", number, "token"), "another client has the same token")
        if any(client.name == other.name for other in clients.values()):
            raise document.error(("clients", number, "name"), f"another client is called {client.name!r}")
        clients[digest(client.token)] = client
    return Access(public=frozenset(file.public), clients=clients, requests_second=requests_second)


def _hide_tokens(document: Located, error: ValidationError) -> None:
    """What is wrong with a token is told without it."""
    for problem in error.errors(include_input=False):
        if problem["loc"][-1:] == ("token",) and problem["type"] != "missing":
            raise document.error(
                problem["loc"], f"must be text of at least {_LEAST_LETTERS} letters, in quotes"
            ) from None


def digest(token: str) -> bytes:
    """Tokens are compared by their digests, so that the time of a comparison tells nothing."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
