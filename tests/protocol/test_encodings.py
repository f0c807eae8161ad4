"""Bodies that came encoded though nobody asked: their text is read as far as it can be."""

import gzip
import importlib.util
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.protocol import error_message
from tfbench.protocol.encodings import MOST_BYTES, decoded

TEXT = b'{"error":{"message":"model is loading"}}'
LONG = json.dumps({"error": {"message": "model is loading"}, "trace": [hash(str(i)) for i in range(4000)]}).encode()


def raw_deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


ENCODED = {
    "gzip": gzip.compress,
    "GZip": gzip.compress,
    " x-gzip ": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "": lambda data: data,
    "identity": lambda data: data,
    "identity, gzip": gzip.compress,
    "deflate, gzip": lambda data: gzip.compress(zlib.compress(data)),
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_an_encoded_error_is_read(encoding: str) -> None:
    body = ENCODED[encoding](TEXT)
    assert decoded(body, encoding) == TEXT
    assert error_message(503, body, encoding) == "HTTP 503: model is loading"


def test_gzip_that_does_not_say_so_is_read() -> None:
    assert error_message(400, gzip.compress(TEXT)) == "HTTP 400: model is loading"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_of_a_body_cut_short_what_came_is_read(encoding: str, kept: float) -> None:
    page = b"<html><title>no upstream</title>" + LONG
    body = ENCODED[encoding](page)
    body = body[: int(len(body) * kept)]
    found = decoded(body, encoding)
    assert found and page.startswith(found)
    assert error_message(502, body, encoding) == "HTTP 502: no upstream"
    corrupt = body[: len(body) // 2] + b"\xff" * 64 + body[len(body) // 2 :]
    assert error_message(502, corrupt, encoding) == "HTTP 502: no upstream"


@pytest.mark.parametrize(
    ("body", "encoding", "message"),
    [
        (b"\x00\x01", "lzw", "body encoded as lzw"),
        (b"not gzip", "gzip", "body encoded as gzip"),
        (b"", "gzip", "body encoded as gzip"),
        (gzip.compress(b""), "gzip", "body encoded as gzip"),
        (gzip.compress(TEXT), "gzip, gzip, gzip, gzip", "body encoded as gzip, gzip, gzip, gzip"),
        (b"x", "g\x1b[31mzip\x00", "body encoded as g [31mzip"),
        (gzip.compress(b"\x1b[31mbusy\x07\xff\xfe\x9b"), "gzip", "[31mbusy \ufffd\ufffd\ufffd"),
    ],
)
def test_what_cannot_be_read_is_told_by_name(body: bytes, encoding: str, message: str) -> None:
    assert error_message(503, body, encoding) == f"HTTP 503: {message}"


@pytest.mark.parametrize(("encoding", "module"), [("br", "brotli"), ("zstd", "zstandard")])
def test_other_codings_where_their_library_is_there(encoding: str, module: str) -> None:
    if importlib.util.find_spec(module) is None:
        assert error_message(503, b"\x1b\x27\x00", encoding) == f"HTTP 503: body encoded as {encoding}"
        return
    library = importlib.import_module(module)
    compress = library.compress if encoding == "br" else library.ZstdCompressor().compress
    assert error_message(503, compress(TEXT), encoding) == "HTTP 503: model is loading"
    body = compress(LONG)
    found = decoded(body[: len(body) // 2], encoding)
    assert found is None or LONG.startswith(found)


def test_a_body_that_blows_up_is_bounded() -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    found = decoded(bomb, "gzip")
    assert found is not None and len(found) <= MOST_BYTES
    assert len(decoded(gzip.compress(bomb), "gzip, gzip") or b"") <= MOST_BYTES


@settings(deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from(["gzip", "deflate", "br", "zstd", "", "gzip, deflate", "\x1b[2J", "x" * 999]),
)
def test_any_body_in_any_coding_gives_one_printable_line(body: bytes, encoding: str) -> None:
    message = error_message(500, body, encoding)
    assert message.startswith("HTTP 500") and message.isprintable() and len(message) <= 300
