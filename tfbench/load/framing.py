"""HTTP/1.1 responses, bytes in: what one read means to the call that waits for it.

Shared by every transport. The parser is llhttp (httptools); this keeps what it says and guards
against what it doesn't: heads without end, bodies without end, bytes after the end.
"""

from typing import Any

import httptools

from tfbench.load.call import Call

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
_LENGTHS = {text: size for size in range(1, 8192) for text in (b"%x" % size, b"%X" % size)}
"""Chunk lengths as nearly every server writes them; any other goes through the parser."""
_LONGEST_KEEP_ALIVE_S = 86_400.0


class Framing:
    """The framing of one connection's responses; `call` is the one waiting (None while idle).

    `take` is asked once for each read. When it returns True the response is over: framed to its end
    if `complete`, else broken with `trouble`.
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

    def take(
        self,
        call: Call,
        data: memoryview | bytes,
        size: int,
        user_ns: int,
        kernel_ns: int,
        lower_ns: int,
        exact: bool,
    ) -> bool:
        """Feed one read of `size` bytes for `call`, the one waiting; True when the response is over.

        `exact` says that the stamp speaks of the last byte of `data`.
        """
        call.last_ns = user_ns
        if self.at_chunk:
            # Nearly every read of a stream is one whole chunk, which needs no parser.
            raw = bytes(data)
            at = raw.find(b"\r\n", 1, 10)
            length = _LENGTHS.get(raw[:at])
            if length is not None and at + 4 + length == size and raw.endswith(b"\r\n"):
                body = raw[at + 2 : -2]
                call.reads.append((user_ns, kernel_ns, lower_ns, exact, body))
                call.body_seen = True
                self.left -= size
                self.bodyless = 0
                if length >= _TAIL_BYTES and not call.done_seen_ns and body.endswith(_JSON_END):
                    self.tail = body
                else:
                    self._note_end_mark(call, body, user_ns, kernel_ns)
                return self.left < 0 and self._is_over(call, data)
        if not call.first_ns:
            call.first_ns = user_ns
            call.first_kernel_ns = kernel_ns
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
        call.reads.append((user_ns, kernel_ns, lower_ns, exact, body))
        call.body_seen = True
        self.bodyless = 0
        self.left -= size
        self._note_end_mark(call, body, user_ns, kernel_ns)
        return self._is_over(call, data) if over else False

    def _note_end_mark(self, call: Call, body: bytes, user_ns: int, kernel_ns: int) -> None:
        # The end mark may come in pieces; a whole one never fits into fewer bytes than are kept.
        self.tail = tail = body if len(body) >= _TAIL_BYTES else (self.tail + body)[-_TAIL_BYTES:]
        if not tail.endswith(_JSON_END) and tail.endswith(_DONE_ENDS):
            call.done_seen_ns = user_ns
            call.end_kernel_ns = kernel_ns
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
