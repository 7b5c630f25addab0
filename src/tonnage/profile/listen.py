"""Profiles of a running job over HTTP: start one, watch it, fetch what it found. The program runs on all the while.

Made for a job on another machine, by way of a tunnel: it listens on this machine alone unless told otherwise, and knows a
few paths and two methods.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tonnage.bounded_server import BoundedServer
from tonnage.errors import NotFound, TonnageError, UsageError
from tonnage.profile.build import report_of_run
from tonnage.profile.job import Job, Window, WindowOptions
from tonnage.profile.outputs import draw_report
from tonnage.profile.report import ProfileReport
from tonnage.profile.stacks import fold, speedscope

MOST_BODY_BYTES = 4096
_IDLE_SECONDS = 10.0  # after which a silent client is sent away


class Busy(UsageError):
    """A window is being looked at already."""

    http_status = 409


@dataclass(frozen=True, slots=True)
class Answer:
    """A body with its kind."""

    body: bytes
    kind: str = "application/json"
    status: int = 200


class Desk:
    """Takes orders and holds results; asked by the threads of the server, filled by the one that follows the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._report: ProfileReport | None = None
        self._trace = b""
        self._asked: WindowOptions | None = None
        self._error = ""

    def follow(self) -> int:
        """Until the program ends; its exit code."""
        while self._job.listen():
            with self._lock:  # an order replaces the window
                window = self._job.window if self._asked is not None else None
            if window is not None and window.is_complete:
                self._finish(window)
        return self._job.wait()

    def _finish(self, window: Window) -> None:
        try:
            report = report_of_run(self._job.program, window, self._job.samples)
            trace, error = gzip.compress(window.trace.read_bytes(), compresslevel=5), ""
        except TonnageError as failure:
            report, trace, error = None, b"", failure.message
        with self._lock:
            self._report, self._trace, self._error, self._asked = report, trace, error, None

    # -- questions ----------------------------------------------------------------------------------------------------

    def health(self) -> Answer:
        return _json({"status": "ok", "program": self._job.program.name, "steps_seen": self._job.turns})

    def order(self, body: bytes) -> Answer:
        options = parse_order(body)
        with self._lock:
            if self._asked is not None:
                raise Busy("a profile is under way", "GET /profile tells how far it is")
            self._asked, self._report, self._error = options, None, ""
            self._job.order(options)
        return Answer(self._state(), status=HTTPStatus.ACCEPTED)

    def state(self) -> Answer:
        with self._lock:
            return Answer(self._state())

    def _state(self) -> bytes:
        if self._asked is not None:
            state = self._job.state if self._job.state in ("warming", "clocking", "tracing") else "waiting for a step"
        else:
            state = "failed" if self._error else "ready" if self._report else "idle"
        options = self._asked or self._job.options
        asked = {"warmup": options.warmup, "steps": options.steps}
        return _json({"state": state, "steps_seen": self._job.turns, "window": asked, "error": self._error}).body

    def report(self) -> ProfileReport:
        with self._lock:
            if self._report is None:
                raise NotFound("there is no profile yet", "POST /profile starts one, GET /profile tells how far it is")
            return self._report

    def trace(self) -> bytes:
        self.report()
        return self._trace


def parse_order(body: bytes) -> WindowOptions:
    """From `{"warmup": 3, "steps": 5}`; both may be left out."""
    try:
        asked = json.loads(body or b"{}")
    except ValueError:
        raise UsageError("the body is not JSON", 'for example {"warmup": 3, "steps": 5}') from None
    if not isinstance(asked, dict) or set(asked) - {"warmup", "steps"}:
        raise UsageError("the body may have warmup and steps, nothing else", 'for example {"warmup": 3, "steps": 5}')
    return WindowOptions(**asked)


def _json(value: Any) -> Answer:
    return Answer(json.dumps(value).encode())


def _pages(desk: Desk) -> dict[str, Callable[[], Answer]]:
    def text(make: Callable[[ProfileReport], str], kind: str) -> Callable[[], Answer]:
        return lambda: Answer(make(desk.report()).encode(), kind)

    return {
        "/healthz": desk.health,
        "/profile": desk.state,
        "/profile/indicators": lambda: _json(desk.report().indicators.as_dict()),
        "/profile/report": lambda: _json(desk.report().as_dict()),
        "/profile/flamegraph.svg": text(draw_report, "image/svg+xml"),
        "/profile/folded": text(lambda report: fold(report.stacks), "text/plain; charset=utf-8"),
        "/profile/speedscope.json": text(
            lambda report: speedscope(report.stacks, report.indicators.program), "application/json"
        ),
        "/profile/trace.json.gz": lambda: Answer(desk.trace(), "application/gzip"),
    }


class Handler(BaseHTTPRequestHandler):
    """Parse, ask the desk, answer."""

    server: Server
    server_version, sys_version = "tonnage", ""
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        self._answer(lambda: self._page()())

    def do_POST(self) -> None:
        self._answer(self._order)

    def _refuse(self) -> None:
        self._send(_problem(HTTPStatus.METHOD_NOT_ALLOWED, f"{self.command} is not known here", "GET and POST are"))

    do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = _refuse  # noqa: N815 - as http.server names them

    def _page(self) -> Callable[[], Answer]:
        page = _pages(self.server.desk).get(self.path.partition("?")[0])
        if page is None:
            raise NotFound(f"there is nothing at {self.path[:200]}", "GET /healthz, /profile, /profile/indicators, ...")
        return page

    def _order(self) -> Answer:
        if self.path != "/profile":
            raise NotFound(f"nothing can be posted to {self.path[:200]}", "POST /profile")
        # A page in somebody's browser cannot send this kind without asking first.
        if self.headers.get_content_type() != "application/json":
            raise UsageError("the body must be application/json")
        return self.server.desk.order(self.rfile.read(self._length()))

    def _length(self) -> int:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise UsageError("the request has no Content-Length") from None
        if not 0 <= length <= MOST_BODY_BYTES:
            self.close_connection = True
            raise TooLarge(f"a body may have {MOST_BODY_BYTES} bytes")
        return length

    def _answer(self, make: Callable[[], Answer]) -> None:
        try:
            answer = make()
        except TonnageError as error:
            self.close_connection = True  # what is left of the request is of no interest
            answer = _problem(error.http_status, error.message, error.hint)
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: standard error belongs to the program."""


class TooLarge(UsageError):
    http_status = 413


def _problem(status: int, message: str, hint: str) -> Answer:
    return Answer(json.dumps({"error": message, "hint": hint}).encode(), status=status)


class Server(BoundedServer, HTTPServer):
    """A few connections at a time."""

    desk: Desk

    def __init__(self, host: str, port: int) -> None:
        try:
            super().__init__(host, port, Handler)
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}", "choose another port") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nobody's error."""


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or a port alone on this machine; raises `UsageError`."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text} is no HOST:PORT", "for example 127.0.0.1:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


def serve(job_of: Callable[[], Job], address: tuple[str, int], ready: Callable[[str], None]) -> int:
    """Listen first, so that nothing was started in vain; then run the program to its end. Its exit code."""
    server = Server(*address)
    try:
        with job_of() as job:
            server.desk = Desk(job)
            threading.Thread(target=server.serve_forever, name="tonnage-http", daemon=True).start()
            ready("http://{}:{}".format(*server.server_address[:2]))
            try:
                return server.desk.follow()
            finally:
                server.shutdown()
    finally:
        server.server_close()
