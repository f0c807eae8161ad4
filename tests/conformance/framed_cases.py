"""Cases of HTTP's own: framing, heads and ends that only the wire sees."""

from collections.abc import Iterator

from tests.conformance.cases import CLOSE, OPEN, RESET, Case, Expected, chunked, events, head
from tests.conformance.hostile import GOOD, NO_END, OK, PLAIN, STOP, WIDE, raw_delta
from tests.load.scripted import DONE, LAST, delta, framed

CHUNKED = "Transfer-Encoding: chunked"
TOP = head(CHUNKED)
SHORT = delta("a") + DONE
GARBLED = "not HTTP/1.1 as we know it"


def _length(data: bytes, *lines: str) -> bytes:
    return head(f"Content-Length: {len(data)}", *lines) + data


def wire_cases() -> Iterator[Case]:
    """Whole cases, framing included."""
    yield from _splits()
    yield from _chunks()
    yield from _heads()
    yield from _lengths()
    yield from _interim()
    yield from _cuts()


def _splits() -> Iterator[Case]:
    data = raw_delta(WIDE) + DONE
    start, size = data.index(WIDE.encode()), len(WIDE.encode())
    for at in range(start, start + size + 1):
        response = TOP + framed(data[:at]) + framed(data[at:]) + LAST
        yield Case(f"HTTP chunk ends {at - start} bytes into wide text", response, Expected("ok", "t", WIDE))
    crlf = delta("a").replace(b"\n", b"\r\n") + DONE.replace(b"\n", b"\r\n")
    for at in [i + 1 for i, byte in enumerate(crlf) if byte in b"\r\n"][:-1]:
        yield Case(f"HTTP chunk ends in CRLF at {at}", TOP + framed(crlf[:at]) + framed(crlf[at:]) + LAST, PLAIN)
    one_by_one = b"".join(framed(GOOD[i : i + 1]) for i in range(len(GOOD)))
    yield Case("a byte a chunk", TOP + one_by_one + LAST, OK)
    yield Case("all in one chunk", TOP + framed(GOOD) + LAST, OK)


def _chunks() -> Iterator[Case]:
    def sized(size: bytes, name: str, expected: Expected = PLAIN) -> Case:
        return Case(name, TOP + size + b"\r\n" + SHORT + b"\r\n" + LAST, expected)

    n = len(SHORT)
    yield sized(b"%x;a=b" % n, "chunk extension")
    yield sized(b'%x;a="b;c";d' % n, "chunk extension, quoted")
    yield sized(b"%x;" % n + b"e" * 5000 + b"=1", "chunk extension of 5 kB")
    yield sized(b"%X" % n, "chunk size in capitals")
    yield sized(b"%012x" % n, "chunk size with zeros before it")
    trailed = TOP + framed(SHORT) + b"0\r\nX-Checksum: 1\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n"
    yield Case("trailers", trailed, PLAIN)
    yield Case("last chunk with an extension", TOP + framed(SHORT) + b"0;x=y\r\n\r\n", PLAIN)
    bad = Expected("stream_error", raw=b"", says=GARBLED)
    for size in (b"zz", b"-5", b"", b"f" * 17, b"0x10"):
        yield Case(f"chunk size {size!r}", TOP + size + b"\r\n" + SHORT + b"\r\n" + LAST, bad)
    yield Case(
        "chunk longer than it says",
        TOP + b"5\r\n" + SHORT + b"\r\n" + LAST,
        Expected("stream_error", raw=SHORT[5:20], says=GARBLED),
    )


def _heads() -> Iterator[Case]:
    body = chunked(events(GOOD))
    yield Case("names in small letters", TOP.lower().replace(b"http/1.1 200 ok", b"HTTP/1.1 200 OK") + body, OK)
    yield Case("names in capitals", TOP.upper() + body, OK)
    yield Case("no reason phrase", TOP.replace(b"200 OK", b"200 ") + body, OK)
    yield Case("no space after the status", TOP.replace(b"200 OK", b"200") + body, OK)
    yield Case("reason phrase in UTF-8", TOP.replace(b"OK", "ça va".encode()) + body, OK)
    yield Case("values with white space", TOP.replace(b": ", b": \t ").replace(b"chunked", b"chunked  ") + body, OK)
    yield Case("no space after colons", TOP.replace(b": ", b":") + body, OK)
    yield Case("empty value", head(CHUNKED, "X-Empty:") + body, OK)
    yield Case("value in Latin-1", head(CHUNKED, "X-Name: caf\xe9") + body, OK)
    yield Case("300 headers", head(CHUNKED, *(f"X-{i}: {i}" for i in range(300))) + body, OK)
    yield Case("a header of 60 kB", head(CHUNKED, "X-Long: " + "v" * 60_000) + body, OK)
    yield Case("headers of 1 MB", head(CHUNKED, *(f"X-{i}: " + "v" * 10_000 for i in range(100))) + body, OK)
    yield Case("type given twice", head(CHUNKED, "Content-Type: text/event-stream") + body, OK)
    yield Case("no type", head(CHUNKED, content_type=None) + body, OK)
    yield Case("line ends before the head", b"\r\n" + TOP + body, OK)
    for seconds in ("5", "0", "-5", "x", "1e3", "inf", "nan", "1e999", "", "5, timeout=nan"):
        yield Case(f"Keep-Alive: timeout={seconds}", head(CHUNKED, f"Keep-Alive: timeout={seconds}, max=9") + body, OK)
    yield Case("Connection: close", head(CHUNKED, "Connection: close") + body, OK, end=CLOSE)
    yield Case("Connection: upgrade", head(CHUNKED, "Connection: upgrade", "Upgrade: h2c") + body, OK)
    garbled = Expected("stream_error", raw=b"", says=GARBLED)
    yield Case("NUL in a header", head(CHUNKED, "X-N: a\0b") + body, garbled)
    yield Case("space in a header's name", head(CHUNKED, "X N: 1") + body, garbled)
    yield Case("not HTTP", b"220 smtp.example ready\r\n", Expected("stream_error", raw=b"220 smtp", says=GARBLED))
    yield Case(
        "TLS alert", b"\x15\x03\x03\x00\x02\x02\x28", Expected("stream_error", raw=b"\x15\x03", says=GARBLED), end=CLOSE
    )
    yield Case(
        "HTTP/2 preface",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        Expected("stream_error", raw=b"\x00\x00\x12", says=GARBLED),
        end=CLOSE,
    )


def _lengths() -> Iterator[Case]:
    yield Case("length of nothing", _length(b""), Expected("stream_error", says="empty"))
    yield Case("length with zeros before it", head(f"Content-Length: 000{len(SHORT)}") + SHORT, PLAIN)
    garbled = Expected("stream_error", raw=b"", says=GARBLED)
    yield Case("two lengths", head("Content-Length: 5", f"Content-Length: {len(SHORT)}") + SHORT, garbled)
    yield Case("length that is no number", head("Content-Length: x") + SHORT, garbled)
    yield Case("length past 64 bits", head("Content-Length: " + "9" * 30) + SHORT, garbled)
    yield Case(
        "length too long, closed",
        head("Content-Length: 9999") + SHORT,
        Expected("stream_error", "t", "a", raw=b"", says="closed"),
        end=CLOSE,
    )
    yield Case(
        "length too long, closed after a finish",
        head("Content-Length: 9999") + delta("a") + STOP,
        Expected("ok", "tf", "a", "stop"),
        end=CLOSE,
    )
    yield Case("length too long, left open", head("Content-Length: 9999") + SHORT, PLAIN)
    yield Case("bytes after the length", _length(SHORT) + b"more", PLAIN)
    yield Case(
        "another response after the end", _length(SHORT) + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", PLAIN
    )
    yield Case("bytes after the last chunk", TOP + framed(SHORT) + LAST + b"more", PLAIN)


def _interim() -> Iterator[Case]:
    body = TOP + chunked(events(GOOD))
    yield Case("100 first", b"HTTP/1.1 100 Continue\r\n\r\n" + body, OK)
    yield Case("103 first", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Type: text/html\r\n\r\n" + body, OK)
    yield Case("ten interim responses", b"HTTP/1.1 102 Processing\r\n\r\n" * 10 + body, OK)
    yield Case("100 alone", b"HTTP/1.1 100 Continue\r\n\r\n", Expected("disconnected"), end=CLOSE)
    yield Case(
        "101",
        head("Connection: upgrade", "Upgrade: x", status="101 Switching") + b"\x00",
        Expected("stream_error", raw=b""),
        end=CLOSE,
    )
    yield Case("204", head(status="204 No Content", content_type=None), Expected("stream_error", says="empty"))
    yield Case("304", head(status="304 Not Modified"), Expected("http_error"))
    yield Case("302", head("Location: /x", "Content-Length: 0", status="302 Found"), Expected("http_error", says="302"))
    yield Case("status 299", head(CHUNKED, status="299 Fine") + framed(SHORT) + LAST, PLAIN)
    yield Case("status 999", head("Content-Length: 0", status="999 Odd"), Expected("http_error", says="999"))


def _cuts() -> Iterator[Case]:
    yield Case("closed at once", b"", Expected("disconnected"), end=CLOSE)
    yield Case("reset at once", b"", Expected("disconnected"), end=RESET)
    yield Case("no answer", b"", Expected("timeout"))
    yield Case("closed inside the head", TOP[:20], Expected("disconnected"), end=CLOSE)
    yield Case("closed after the head", TOP, Expected("stream_error", raw=b"", says="closed"), end=CLOSE)
    yield Case("headers alone", TOP, Expected("timeout"))
    text = TOP + framed(delta("a"))
    lost = Expected("stream_error", "t", "a", raw=b"", says="closed")
    yield Case("closed between chunks", text, lost, end=CLOSE)
    yield Case(
        "closed inside a chunk", text + b"ff\r\ndata: {", Expected("stream_error", "t", "a", raw=b"data: {"), end=CLOSE
    )
    yield Case("reset between chunks", text, Expected("stream_error", "t", "a", raw=b"", says="reset"), end=RESET)
    yield Case("silence between chunks", text, Expected("timeout", "t", "a"))
    yield Case("closed after a finish", text + framed(STOP), Expected("ok", "tf", "a", "stop"), end=CLOSE)
    yield Case("reset after a finish", text + framed(STOP), Expected("ok", "tf", "a", "stop"), end=RESET)
    yield Case("end mark, then closed unframed", TOP + framed(SHORT), lost, end=CLOSE)
    yield Case("end mark, left open", TOP + framed(SHORT), PLAIN)
    yield Case(
        "no end, closed where the close ends it",
        head() + delta("a"),
        Expected("stream_error", "t", "a", says=NO_END),
        end=CLOSE,
    )
    yield Case(
        "reset where the close ends it",
        head() + delta("a"),
        Expected("stream_error", "t", "a", raw=b"", says="reset"),
        end=RESET,
    )
    yield Case("end mark, left open, close-delimited", head() + SHORT, PLAIN, end=OPEN)
