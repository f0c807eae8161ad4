"""HTTP/1.1 responses, bytes in: what one read means to the call that waits for it.

Shared by every transport. The parser is llhttp (httptools); this keeps what it says and guards
against what it doesn't: heads without end, bodies without end, bytes after the end.
"""

from typing import Any

import httptools

from tfbench.load.call import Call
from tfbench.load.stamps import ns_of

MAX_BODYLESS_BYTES = (1 << 20) + (1 << 16)
"""Bytes in a row that carry no body (headers, trailers, 1xx answers) before a response is given up: 1 MB of headers
passes."""
MAX_BODY_BYTES = 256 << 20
"""Body bytes of one response before it is given up. It bounds what one stream can take of the worker's memory."""
_GARBAGE_KEPT_BYTES = 64 * 1024
_JSON_END = b"}\n\n"
"""How nearly every event ends: a quick no."""
_DONE_ENDS = (b"[DONE]\n\n", b"[DONE]\r\n\r\n", b"[DONE]\n", b"[DONE]\r\n", b"[DONE]\r\r", b"[DONE]")
_TAIL_BYTES = 32
EVENT_END = _JSON_END + b"\r\n"
"""How a read ends that is one chunk with one or more whole events of JSON, as nearly all are."""
QUICK_BYTES = 2048
"""A read that is larger than a chunk usually is, it and its framing."""


def _chunk_heads() -> tuple[bytes, ...]:
    heads = [b"\0"] * (QUICK_BYTES + 1)
    for length in range(1, QUICK_BYTES):
        head = b"%x\r\n" % length
        if len(head) + length + 2 < QUICK_BYTES:
            heads[len(head) + length + 2] = head
    return tuple(heads)


CHUNK_HEADS = _chunk_heads()
"""By the size of a read, how it begins if it is exactly one chunk, as nearly every server writes the length; anything
else goes through the parser."""
_LONGEST_KEEP_ALIVE_S = 86_400.0


class Framing:
    """The framing of one connection's responses; `call` is the one waiting (None while idle).

    `take` is asked once for each read. When it returns True the response is over: framed to its end
    if `complete`, else broken with `trouble`. While `steady`, a read that begins with its size's CHUNK_HEADS and ends
    with EVENT_END may go to the call without being taken here, as long as `left` is kept.
    """

    __slots__ = (
        "at_chunk",
        "body",
        "bodyless",
        "call",
        "chunked",
        "close_delimited",
        "complete",
        "feed",
        "keep_alive",
        "keep_alive_s",
        "left",
        "on_body",
        "parser",
        "promised_close",
        "tail",
        "trouble",
    )

    def __init__(self) -> None:
        self.call: Call | None = None
        self.body: list[bytes] = []
        # The parser calls this once for each piece of body: list.append itself spares a Python frame.
        self.on_body: Any = self.body.append
        self.parser: Any = httptools.HttpResponseParser(self)
        self.feed: Any = self.parser.feed_data
        self.begin(None)

    def begin(self, call: Call | None) -> None:
        """Wait for the response to `call`."""
        self.call = call
        self.complete = False
        self.close_delimited = True
        self.chunked = False
        self.keep_alive = False
        self.promised_close = False
        self.keep_alive_s = 0.0
        self.bodyless = 0
        self.left = MAX_BODY_BYTES
        self.tail = b""
        self.trouble = ""
        self.at_chunk = False

    def release(self) -> None:
        """Let go of the parser: it holds our methods, a cycle that would outlive a run without a collector."""
        self.parser = self.feed = self.on_body = None

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.complete:
            raise ValueError("bytes after the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        call = self.call
        if call is None or call.status:
            # Nobody's, or a trailer.
            return
        key = name.lower()
        if key == b"content-type":
            call.content_type = value.lower()
        elif key == b"content-encoding":
            call.content_encoding = value.strip().lower()
        elif key == b"content-length":
            self.close_delimited = False
        elif key == b"transfer-encoding":
            self.chunked = b"chunked" in value.lower()
            self.close_delimited = not self.chunked
        elif key == b"retry-after":
            call.retry_after = value
        elif key == b"keep-alive":
            self.keep_alive_s = _keep_alive_timeout_s(value)

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if self.call is not None and status >= 200:
            self.call.status = status

        self.at_chunk = True

    def on_chunk_header(self) -> None:
        self.at_chunk = False

    def on_chunk_complete(self) -> None:
        self.at_chunk = True

    def on_message_complete(self) -> None:
        self.at_chunk = False
        if self.parser.get_status_code() >= 200:
            self.complete = True
            # The parser forgets once this callback returns.
            self.keep_alive = self.parser.should_keep_alive()
            self.promised_close = not self.keep_alive
        else:
            # A 1xx answer; the real one follows.
            self.close_delimited = True
            self.chunked = False

    # Called by the transport.

    @property
    def steady(self) -> bool:
        """Whether the stream stands between two chunks, its last event whole and no end in sight."""
        return self.at_chunk and self.tail.endswith(_JSON_END)

    def take(
        self,
        call: Call,
        data: memoryview | bytes,
        size: int,
        user_ns: int,
        stamp: bytes,
        lower_ns: int,
        exact: bool,
    ) -> bool:
        """Feed one read of `size` bytes for `call`, the one waiting; True when the response is over.

        `exact` says that the stamp speaks of the last byte of `data`.
        """
        call.last_ns = user_ns
        if self.at_chunk and size <= QUICK_BYTES:
            # Nearly every read of a stream is one whole chunk, which needs no parser.
            raw = bytes(data)
            head = CHUNK_HEADS[size]
            if raw.startswith(head) and raw.endswith(b"\r\n"):
                self._keep(call, raw[len(head) : -2], size, user_ns, stamp, lower_ns, exact)
                return self.left < 0 and self._is_over(call, data)
        if not call.first_ns:
            call.first_ns = user_ns
            call.first_kernel_ns = ns_of(stamp)
        try:
            self.feed(data)
            self.at_chunk = self.at_chunk and self.chunked and bytes(data[-2:]) == b"\r\n"
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._failed(error)
        parts = self.body
        if not parts:
            self.bodyless += size
            return self._is_over(call, data)
        body = parts.pop()
        if parts:
            parts.append(body)
            body = b"".join(parts)
            parts.clear()
        over = self.complete or self.trouble or size > self.left
        if over and (self.chunked or self.trouble):
            # A last-chunk mark (or garbage) in the same read may have come later than the bytes before it.
            exact = False
        self._keep(call, body, size, user_ns, stamp, lower_ns, exact)
        return self._is_over(call, data) if over else False

    def _keep(self, call: Call, body: bytes, size: int, user_ns: int, stamp: bytes, lower_ns: int, exact: bool) -> None:
        call.reads.append((user_ns, stamp, lower_ns, exact, body, call.tick.attempt))
        call.body_seen = True
        self.bodyless = 0
        self.left -= size
        # The end mark may come in pieces; a whole one never fits into fewer bytes than are kept.
        self.tail = tail = body if len(body) >= _TAIL_BYTES else (self.tail + body)[-_TAIL_BYTES:]
        if not tail.endswith(_JSON_END) and tail.endswith(_DONE_ENDS):
            call.done_seen_ns = user_ns
            call.end_kernel_ns = ns_of(stamp)
        elif call.done_seen_ns:
            # It goes on after its end mark, so that wasn't the end.
            call.done_seen_ns = 0

    def _is_over(self, call: Call, data: memoryview | bytes) -> bool:
        if self.complete:
            return True
        if self.left < 0:
            self.trouble = f"the response is larger than {MAX_BODY_BYTES >> 20} MiB"
        elif self.bodyless > MAX_BODYLESS_BYTES:
            self.trouble = f"over {MAX_BODYLESS_BYTES >> 10} KiB of headers"
        if not self.trouble:
            return False
        if self.left >= 0:
            call.garbage = bytes(data[:_GARBAGE_KEPT_BYTES])
        return True

    def _failed(self, error: Exception) -> None:
        if self.complete:
            # The response is whole; what follows it is nobody's, and so is the connection.
            self.keep_alive = self.promised_close = False
            self.trouble = "bytes after the response"
        elif isinstance(error, httptools.HttpParserUpgrade):
            self.trouble = "the server switched protocols, which was not asked for"
        else:
            self.trouble = f"not HTTP/1.1 as we know it: {str(error) or type(error).__name__}"


def _keep_alive_timeout_s(value: bytes) -> float:
    for part in value.split(b","):
        name, _, number = part.strip().partition(b"=")
        if name.lower() == b"timeout":
            try:
                seconds = float(number)
            except ValueError:
                return 0.0
            # Neither nan nor inf is a promise one can count on.
            return min(seconds, _LONGEST_KEEP_ALIVE_S) if seconds > 0 else 0.0
    return 0.0
