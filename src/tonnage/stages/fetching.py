"""One document from a service over HTTP, with an end to every wait and a limit to its size."""

from __future__ import annotations

import time
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tonnage.errors import InvalidFile, Unreachable, UsageError
from tonnage.hardware.yaml_lines import MOST_BYTES

SILENCE_SECONDS = 10.0
WHOLE_SECONDS = 60.0
_PART_BYTES = 1 << 16


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def fetch(url: str) -> bytes:
    """What is there; raises `Unreachable`, or `InvalidFile` where it is too much."""
    try:
        _check(url)
        request = Request(url, headers={"Accept": "application/json", "User-Agent": "tonnage"})
        with urlopen(request, timeout=SILENCE_SECONDS) as response:
            return _all_of(response, url)
    except HTTPError as error:
        with error:
            raise Unreachable(f"{url} answers {error.code} {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise Unreachable(f"{url} does not answer: {reason}", "is the address right?") from None


def _check(url: str) -> None:
    """A name and a password would be shown wherever the address is."""
    if "@" in urlsplit(url).netloc:
        raise UsageError(
            "an address with a user's name in it is not taken", "for example: http://monitor:9000/statistics"
        )


def _all_of(response: HTTPResponse, url: str) -> bytes:
    content, end = b"", time.monotonic() + WHOLE_SECONDS
    while part := response.read1(_PART_BYTES):
        content += part
        if len(content) > MOST_BYTES:
            raise InvalidFile(f"{url}: more than {MOST_BYTES} bytes are too many for a document of this kind")
        if time.monotonic() > end:
            raise Unreachable(f"{url} is not done after {WHOLE_SECONDS:g} s")
    return content
