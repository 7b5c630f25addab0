"""The server's log on standard error: for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from tonnage.errors import UsageError

_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}

_QUOTED = frozenset(' "=')


def start_logging(form: str) -> None:
    """`text` or `json`. What a record carries beside its message is shown with it."""
    if form not in ("text", "json"):
        raise UsageError(f"--log-format {form} is not known", "text or json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    log = logging.getLogger("tonnage.serve")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        more = "".join(f" {key}={_word(value)}" for key, value in _extras(record).items())
        failure = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{_moment(record)} {record.levelname.lower()} {record.getMessage()}{more}{failure}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _word(value: object) -> str:
    """In quotes where it could be taken for something else: clients choose some of the values."""
    text = str(value)
    return text if text.isprintable() and text and not set(text) & _QUOTED else json.dumps(text)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
