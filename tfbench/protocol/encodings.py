"""Content codings of bodies that nobody asked to have encoded: an error's text is read all the same."""

import importlib
import zlib
from collections.abc import Callable
from typing import Any

MOST_BYTES = 64 * 1024
"""An error has said what it has to say by then; a compressed body can be a thousand times as long as it came."""
_MOST_CODINGS = 3
_GZIP_MAGIC = b"\x1f\x8b"


def decoded(body: bytes, encoding: str) -> bytes | None:
    """The first MOST_BYTES of a body with this Content-Encoding, of a broken one what came before the break.

    None where a coding is unknown here or its library missing, or where nothing can be read. A body that is gzip
    without saying so is read too.
    """
    names = [name for name in (part.strip().lower() for part in encoding.split(",")) if name not in ("", "identity")]
    if not names and body.startswith(_GZIP_MAGIC):
        names = ["gzip"]
    if not names:
        return body
    if len(names) > _MOST_CODINGS:
        return None
    for name in reversed(names):
        decode = _CODINGS.get(name)
        found = None if decode is None else decode(body)
        if not found:
            return None
        body = found
    return body


def _inflate(body: bytes, window_bits: int) -> bytes:
    """What zlib makes of `body`, fed in small parts so that what precedes a break isn't lost."""
    machine = zlib.decompressobj(window_bits)
    out = b""
    for at in range(0, len(body), 64):
        try:
            out += machine.decompress(body[at : at + 64], MOST_BYTES - len(out))
        except zlib.error:
            break
        if machine.eof or len(out) >= MOST_BYTES:
            break
    return out


def _gzip(body: bytes) -> bytes:
    return _inflate(body, zlib.MAX_WBITS | 16)


def _deflate(body: bytes) -> bytes:
    """As the standard says with zlib's header, or as many servers do without."""
    return _inflate(body, zlib.MAX_WBITS) or _inflate(body, -zlib.MAX_WBITS)


def _first_module(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _fed(feed: Callable[[bytes], bytes], body: bytes) -> bytes:
    """What a decoder whose errors are its library's own gives for the parts of `body`, up to the first it refuses."""
    out = b""
    for at in range(0, min(len(body), MOST_BYTES), 16):
        try:
            out += feed(body[at : at + 16])
        except Exception:  # noqa: BLE001 - each library has errors of its own
            break
        if len(out) >= MOST_BYTES:
            break
    return out[:MOST_BYTES]


def _brotli(body: bytes) -> bytes:
    module = _first_module("brotli", "brotlicffi")
    if module is None:
        return b""
    machine = module.Decompressor()
    return _fed(getattr(machine, "process", None) or machine.decompress, body)


def _zstd(body: bytes) -> bytes:
    module = _first_module("compression.zstd", "backports.zstd", "zstandard")
    if module is None:
        return b""
    machine = module.ZstdDecompressor()
    # The `zstandard` package keeps streams apart from its decompressor.
    return _fed((machine.decompressobj() if hasattr(machine, "decompressobj") else machine).decompress, body)


_CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
