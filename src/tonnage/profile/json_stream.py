"""Reads the events of a Chrome trace one after the other, so that its size does not matter.

A trace is `{"traceEvents": [...], ...}` or the array alone. Each event is decoded by itself out of a window of a few
megabytes: Python's own decoder, written in C, is faster at that than streaming parsers that hand over every token.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.errors import InvalidFile, NotFound
from tonnage.units import format_bytes

CHUNK_BYTES = 1 << 21
MOST_EVENT_CHARACTERS = 1 << 26  # what is larger is no event
_CUT_CHARACTERS = 4096  # an error so far from the end of what was read has another reason than that end
_SPACE = re.compile(r"[\s,]*")
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_decode = json.JSONDecoder().raw_decode


class TraceFile:
    """One pass over the events of a file. `header` has what stands before them, as far as it is plain."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header: dict[str, Any] = {}
        self.count = 0
        self._text = ""
        self._at = 0
        self._is_array = False
        self._read_characters = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """Raises `InvalidFile` for what is empty, cut off or something else, with how much could be read."""
        with self._open() as file:
            chunks = self._chunks(file)
            self._find_events(chunks)
            while (event := self._next(chunks)) is not None:
                if isinstance(event, dict):
                    self.count += 1
                    yield event

    # -- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> gzip.GzipFile | io.BufferedReader:
        try:
            with self.path.open("rb") as beginning:
                is_packed = beginning.read(2) == b"\x1f\x8b"
            return gzip.GzipFile(self.path) if is_packed else self.path.open("rb")
        except FileNotFoundError:
            raise NotFound(f"there is no file {self.path}") from None
        except OSError as error:
            raise InvalidFile(f"{self.path} cannot be read: {error.strerror}") from None

    def _chunks(self, file: gzip.GzipFile | io.BufferedReader) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                chunk = file.read1(CHUNK_BYTES)  # what there is, also of a file that ends too early
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return  # the rest is missing: found out by whoever expects more
            if not chunk:
                return
            self._read_characters += len(chunk)
            yield decoder.decode(chunk)

    def _more(self, chunks: Iterator[str]) -> bool:
        chunk = next(chunks, None)
        if chunk is None:
            return False
        self._text, self._at = self._text[self._at :] + chunk, 0
        return True

    # -- events -------------------------------------------------------------------------------------------------------

    def _find_events(self, chunks: Iterator[str]) -> None:
        while not self._text.strip():
            if not self._more(chunks):
                raise InvalidFile(f"{self.path} is empty")
        self._at = len(self._text) - len(self._text.lstrip("\ufeff \t\r\n"))
        if self._text[self._at] == "[":
            self._at, self._is_array = self._at + 1, True
            return
        if self._text[self._at] != "{":
            raise InvalidFile(f"{self.path} is no trace: it is not JSON", "a trace is what a profiler exports")
        while (found := _EVENTS.search(self._text, self._at)) is None:
            if not self._more(chunks) or len(self._text) > MOST_EVENT_CHARACTERS:
                self._explain_lack()
        self.header = _plain_header(self._text[self._at : found.start()])
        self._at = found.end()

    def _explain_lack(self) -> None:
        try:
            json.loads(self._text)
        except json.JSONDecodeError:
            raise self._truncated() from None
        raise InvalidFile(f"{self.path} is no Kineto or Chrome trace: it has no traceEvents")

    def _next(self, chunks: Iterator[str]) -> Any:
        """The next value of the array, None at its end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # matches anything
            if self._at < len(self._text):
                if self._text[self._at] == "]":
                    return None
                try:
                    value, self._at = _decode(self._text, self._at)
                    return value
                except json.JSONDecodeError as error:
                    self._check_progress(error)
                except RecursionError:
                    raise InvalidFile(
                        f"{self.path} is damaged behind event {self.count:,}: it is nested without end"
                    ) from None
            if not self._more(chunks):
                # The array form may lack its last bracket: so says the format, for programs that die.
                if self._is_array and self.count and self._at >= len(self._text):
                    return None
                raise self._truncated()

    def _check_progress(self, error: json.JSONDecodeError) -> None:
        """An event that goes on in the next chunk is no error; one that never ends, or is wrong in the middle, is."""
        if len(self._text) - error.pos > _CUT_CHARACTERS and error.msg != "Unterminated string starting at":
            raise InvalidFile(f"{self.path} is damaged behind event {self.count:,}: {error.msg}")
        if len(self._text) - self._at > MOST_EVENT_CHARACTERS:
            raise InvalidFile(f"{self.path} is damaged behind event {self.count:,}: the next one does not end")

    def _truncated(self) -> InvalidFile:
        return InvalidFile(
            f"{self.path} is cut off: {self.count:,} events in {format_bytes(self._read_characters)} could be read",
            "export or copy the trace again",
        )


def _plain_header(text: str) -> dict[str, Any]:
    """What stands before the events, such as the devices' properties; nothing if it is not as expected."""
    try:
        header = json.loads(text.rstrip().rstrip(",") + "}")
    except json.JSONDecodeError:
        return {}
    return header if isinstance(header, dict) else {}
