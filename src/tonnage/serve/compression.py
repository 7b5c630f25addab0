"""Bodies that are compressed, within limits: a small body may hold a very large one."""

from __future__ import annotations

import zlib

from tonnage.serve.errors import InvalidRequest, TooLarge, Unsupported

_GZIP, _ZLIB = 31, 15  # what zlib calls their windows
_LEVEL = 1  # numbers hardly get smaller with more effort


def decompress(body: bytes | bytearray, encoding: str, most_bytes: int) -> bytes:
    window = _window(encoding)
    engine = zlib.decompressobj(window)
    try:
        whole = engine.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the body is not {encoding}, which Content-Encoding says: {error}") from None
    if len(whole) > most_bytes:
        raise TooLarge(f"the body has more than the {most_bytes} bytes that are taken, when it is decompressed")
    if not engine.eof:
        raise InvalidRequest(f"the body ends in the middle of its {encoding}")
    return whole


def compress(body: bytes, encoding: str) -> bytes:
    engine = zlib.compressobj(_LEVEL, zlib.DEFLATED, _window(encoding))
    return engine.compress(body) + engine.flush()


def chosen_encoding(accepted: str) -> str:
    """What a client accepts and this server can do; "" for neither."""
    offers = {}
    for offer in accepted.lower().split(","):
        name, _, weight = offer.strip().partition(";q=")
        try:
            offers[name.strip()] = float(weight) if weight else 1.0
        except ValueError:
            continue
    usable = [name for name, weight in offers.items() if name in ("gzip", "deflate") and weight > 0]
    return max(usable, key=lambda name: offers[name], default="")  # of equals the first


def _window(encoding: str) -> int:
    if encoding not in ("gzip", "deflate"):
        raise Unsupported(f"Content-Encoding {encoding!r} is not known here", "use gzip or deflate")
    return _GZIP if encoding == "gzip" else _ZLIB
