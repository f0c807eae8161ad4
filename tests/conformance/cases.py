"""What a conformance case is, and how one body becomes several: framed in chunks, by length, by the close."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.load.scripted import LAST, framed

KIND_OF_LETTER = {
    "r": "role",
    "t": "text",
    "R": "reasoning",
    "T": "tool",
    "e": "empty",
    "u": "usage",
    "f": "finish",
    "x": "error",
    "c": "comment",
}

OPEN, CLOSE, RESET = "open", "close", "reset"
"""What the server does with the connection after the last byte."""


@dataclass(frozen=True)
class Expected:
    """A response's facts.

    `kinds` has a letter per chunk; `tokens` a number per chunk (None: unknown for all); `usage` is
    prompt, cached, output, reasoning. `raw` is part of what must be kept of bytes that weren't
    understood; None: nothing is kept. `says` is part of the error.
    """

    outcome: str
    kinds: str = ""
    text: str = ""
    finish: str | None = None
    usage: tuple[int | None, int | None, int | None, int | None] | None = None
    tokens: tuple[int | None, ...] | None = None
    raw: bytes | None = None
    says: str = ""


@dataclass(frozen=True)
class Body:
    """What a response holds once HTTP's framing is off: the pure path starts here."""

    data: bytes
    status: int = 200
    content_type: bytes = b"text/event-stream"
    content_encoding: bytes = b""


@dataclass(frozen=True)
class Case:
    """A response as the server sends it, and what must come of it. `body` is None where only the wire can tell."""

    name: str
    response: bytes
    expected: Expected
    end: str = OPEN
    dialect: str = "openai_chat"
    body: Body | None = None


def head(*lines: str, status: str = "200 OK", content_type: str | None = "text/event-stream") -> bytes:
    """A response's head."""
    named = [] if content_type is None else [f"Content-Type: {content_type}"]
    return "\r\n".join([f"HTTP/1.1 {status}", *named, *lines]).encode("latin-1") + b"\r\n\r\n"


def pieces(data: bytes, size: int) -> list[bytes]:
    """`data` cut in pieces of `size`."""
    return [data[i : i + size] for i in range(0, len(data), size)]


def events(data: bytes) -> list[bytes]:
    """`data` cut after each blank line, as servers cut it."""
    return re.findall(rb".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", data, re.DOTALL)[:-1] if data else []


def chunked(parts: Sequence[bytes]) -> bytes:
    """`parts` as one HTTP chunk each, and the last chunk."""
    return b"".join(framed(part) for part in parts if part) + LAST


def framings(case: Case) -> Iterator[Case]:
    """The case's body in every framing that HTTP/1.1 has; `response` is ignored."""
    assert case.body is not None
    body = case.body
    data = body.data
    lines = [f"Content-Encoding: {body.content_encoding.decode()}"] if body.content_encoding else []
    status = f"{body.status} Whatever"
    kind = body.content_type.decode()

    def top(*more: str) -> bytes:
        return head(*lines, *more, status=status, content_type=kind)

    whole = top("Transfer-Encoding: chunked")
    for name, response, end in (
        ("chunk per event", whole + chunked(events(data)), OPEN),
        ("chunks of 7", whole + chunked(pieces(data, 7)) if len(data) < 20_000 else b"", OPEN),
        ("content-length", top(f"Content-Length: {len(data)}") + data, OPEN),
        ("close-delimited", top("Connection: close") + data, CLOSE),
        ("close-delimited, unannounced", top() + data, CLOSE),
        ("HTTP/1.0", top().replace(b"HTTP/1.1", b"HTTP/1.0", 1) + data, CLOSE),
    ):
        if response:
            yield replace(case, name=f"{case.name} · {name}", response=response, end=end)


def with_body(name: str, data: bytes, expected: Expected, dialect: str = "openai_chat", **fields: object) -> Case:
    """A case of a body yet to be framed; `fields` are Body's."""
    return Case(name, b"", expected, dialect=dialect, body=Body(data, **fields))  # type: ignore[arg-type]
