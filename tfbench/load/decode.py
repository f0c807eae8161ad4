"""From recorded reads to chunks and an outcome."""

from array import array
from typing import NamedTuple

from tfbench.core.jsonio import sha256_hex
from tfbench.core.kinds import OUTPUT_KINDS, VISIBLE_KINDS, ChunkKind, Outcome
from tfbench.load.call import FRAMED, INEXACT, Call, Ending
from tfbench.load.stamps import to_stamp
from tfbench.protocol import DIALECTS, SseEvent, SseParser, Usage, error_message, one_line, resolve_tokens

KIND_NAMES: tuple[str, ...] = tuple(kind.value for kind in ChunkKind)
_KINDS = tuple(ChunkKind)
_CODE = {kind: code for code, kind in enumerate(_KINDS)}
_TEXT = bytes([_CODE[ChunkKind.TEXT]])
_IS_EXACT = bytes(form != INEXACT for form in range(256))
_RAW_KEPT_BYTES = 1 << 20
_SSE_START_BYTES = 6
_PATTERNS = 4
_SSE_STARTS = (b"data", b":", b"event", b"id", b"retry", b"\xef\xbb\xbf")


class Decoded(NamedTuple):
    """What one call came to. Chunk columns are parallel; `kinds` are codes into `KIND_NAMES`.

    `user` and `lower` are int64 bytes in machine order, `stamps` the kernel's (`stamps.NO_STAMP` = none), `exact` one
    byte each, `tokens` int32 bytes (-1 = unknown). `raw` is what couldn't be understood.
    `ended_with_last_read`: the call ended with its last read, however long the wire held on to it.
    """

    outcome: str
    error: str
    finish_reason: str | None
    usage: Usage
    output_sha256: str | None
    kinds: bytes
    user: bytes
    stamps: bytes
    lower: bytes
    exact: bytes
    tokens: bytes
    output: str
    raw: bytes
    ended_with_last_read: bool


def _unframed(chunk: bytes) -> bytes:
    """What one HTTP chunk carries."""
    return chunk[chunk.index(b"\n") + 1 : -2]


class CallDecoder:
    """Decodes one call: `feed` it every read, then `finish`."""

    __slots__ = (
        "_body",
        "_call",
        "_counts",
        "_decoder",
        "_dialect",
        "_exact",
        "_finish_reason",
        "_foot",
        "_head",
        "_held",
        "_kinds",
        "_last",
        "_lower",
        "_patterns",
        "_raw",
        "_sse",
        "_stamps",
        "_streamed",
        "_tail",
        "_texts",
        "_usage",
        "_user",
    )

    def __init__(self, call: Call, dialect: str) -> None:
        self._call = call
        self._dialect = DIALECTS[dialect]
        # Columns of the chunks; `_counts` has the tokens of those that told them.
        self._kinds = bytearray()
        self._user = array("q")
        self._stamps = bytearray()
        self._lower = array("q")
        self._exact = bytearray()
        self._counts: dict[int, int] = {}
        self._texts: list[str] = []
        self._decoder = self._dialect.stream_decoder()
        self._sse = SseParser()
        self._body: list[bytes] = []
        self._raw = bytearray()
        self._streamed: bool | None = None
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._held: list[tuple[int, bytes, int, bool, bytes]] = []
        self._tail = b""
        # The stamps of the latest read of the body, and whether they are exact.
        self._last = (0, b"", 0, False)
        # What stands before and after the text of an event like the last one; looked for a few times a call.
        self._head = self._foot = b""
        self._patterns = _PATTERNS

    def feed(self, user: list[int], stamps: list[bytes], lower: list[int], forms: list[int], data: list[bytes]) -> None:
        """Decode the next reads of the call: the fields of `Read`, a list each."""
        if data:
            self._last = (user[-1], stamps[-1], lower[-1], forms[-1] != INEXACT)
        at = 0
        while at < len(data):
            texts = self._texts_alike(forms, data, at) if self._head and self._sse.between else []
            if texts:
                start, at = at, at + len(texts)
                self._kinds += _TEXT * len(texts)
                self._user.fromlist(user[start:at])
                self._stamps += b"".join(stamps[start:at])
                self._lower.fromlist(lower[start:at])
                self._exact += bytes(forms[start:at]).translate(_IS_EXACT)
                self._texts += texts
            else:
                body = _unframed(data[at]) if forms[at] == FRAMED else data[at]
                self._take(user[at], stamps[at], lower[at], forms[at] != INEXACT, body)
                at += 1

    def _texts_alike(self, forms: list[int], data: list[bytes], at: int) -> list[str]:
        """The texts of the reads from `at` on that are nothing but an event like the last one.

        Nearly every event is: its text then needs no parser, where it is a JSON string's inside without escapes.
        """
        texts: list[str] = []
        head, foot = self._head, self._foot
        head_size, foot_size = len(head), len(foot)
        try:
            for i in range(at, len(data)):
                body = data[i]
                if forms[i] == FRAMED:
                    start, end = body.index(b"\n") + 1, len(body) - 2
                else:
                    start, end = 0, len(body)
                if not body.startswith(head, start) or not body.endswith(foot, start, end):
                    break
                text = body[start + head_size : end - foot_size].decode()
                if not text or not text.isprintable() or '"' in text or "\\" in text:
                    break
                texts.append(text)
        except UnicodeDecodeError:
            pass  # JSON readers differ on such a text: the parser shall say.
        return texts

    def _take(self, user: int, stamp: bytes, lower: int, exact: bool, data: bytes) -> None:
        if self._streamed:
            self._read(user, stamp, lower, exact, data)
        elif self._streamed is False:
            self._body.append(data)
        else:
            # Until it is known what this is; a read may hold a single byte.
            self._held.append((user, stamp, lower, exact, data))
            self._decide(last=False)

    def _decide(self, *, last: bool) -> None:
        start = b"".join(read[4] for read in self._held).lstrip(b" \r\n")
        self._streamed = self._is_stream(start, last=last)
        if self._streamed is None:
            return
        for read in self._held:
            if self._streamed:
                self._read(*read)
            else:
                self._body.append(read[4])
        self._held.clear()

    def _is_stream(self, start: bytes, *, last: bool) -> bool | None:
        """Whether the body is an SSE stream, by what is said of it or by its first bytes; None = too few yet."""
        call = self._call
        if not 200 <= call.status < 300 or call.content_encoding not in (b"", b"identity"):
            return False
        if b"text/event-stream" in call.content_type:
            return True
        if b"html" in call.content_type:
            return False
        if len(start) < _SSE_START_BYTES and not last:
            return None
        return start.startswith(_SSE_STARTS)

    def _read(self, user: int, stamp: bytes, lower: int, exact: bool, data: bytes) -> None:
        size = len(data)
        events = self._sse.feed(data)
        for event in events:
            chunk = self._decoder.feed(event)
            if chunk is None:
                continue
            kind, text, tokens = chunk
            if tokens is not None:
                self._counts[len(self._kinds)] = tokens
            self._add(kind, user, stamp, lower, exact and event.end == size)
            if text:
                self._texts.append(text)
                if len(events) == 1 and self._patterns:
                    self._learn(event, text, data)
            elif kind is ChunkKind.ERROR or (kind is ChunkKind.COMMENT and not event.comment):
                self._keep(event.data)
        if self._decoder.usage is not None:
            # A count says how much came since the one before, so from here on every event counts.
            self._head = b""
            self._patterns = 0

    def _add(self, kind: ChunkKind, user: int, stamp: bytes, lower: int, exact: bool) -> None:
        self._kinds.append(_CODE[kind])
        self._user.append(user)
        self._stamps += stamp
        self._lower.append(lower)
        self._exact.append(exact)

    def _learn(self, event: SseEvent, text: str, data: bytes) -> None:
        self._patterns -= 1
        pattern = self._decoder.pattern(event.data, text)
        if pattern is not None:
            head, foot = b"data: " + pattern[0], pattern[1] + b"\n\n"
            if data.startswith(head) and data.endswith(foot):
                self._head, self._foot = head, foot

    def _keep(self, data: bytes) -> None:
        if data and len(self._raw) < _RAW_KEPT_BYTES:
            self._raw += data[:_RAW_KEPT_BYTES] + b"\n"

    def finish(self) -> Decoded:
        """What the call came to."""
        call = self._call
        if self._held:
            self._decide(last=True)
        tail = bytes(self._sse.tail)
        if self._streamed and tail and call.ending in (Ending.COMPLETE, Ending.LINGERED):
            # Some servers leave the last event's blank line out; a whole event is taken all the same.
            before = len(self._kinds)
            # Its bytes had all come by the last read.
            self._read(*self._last, b"\n" if tail.endswith(b"\n") else b"\n\n")
            made = self._kinds[before:]
            if made and made[-1] == _CODE[ChunkKind.ERROR]:
                self._keep(tail)
            tail = b"" if made or self._decoder.done else tail
        self._tail = tail
        outcome, error = self._outcome()
        if self._streamed:
            self._usage, self._finish_reason = self._decoder.usage, self._decoder.finish_reason
            self._settle_role()
        kinds = {_KINDS[code] for code in set(self._kinds)}
        usage = (self._usage or Usage()).beside(kinds)
        output = "".join(self._texts)
        has_output = not OUTPUT_KINDS.isdisjoint(kinds)
        return Decoded(
            outcome=outcome.value,
            error=one_line(error),
            finish_reason=self._finish_reason,
            usage=usage,
            output_sha256=sha256_hex(output.encode(errors="surrogatepass")) if has_output else None,
            kinds=bytes(self._kinds),
            user=self._user.tobytes(),
            stamps=bytes(self._stamps),
            lower=self._lower.tobytes(),
            exact=bytes(self._exact),
            tokens=self._tokens(usage.output_tokens),
            output=output,
            raw=bytes(self._raw) if outcome is Outcome.STREAM_ERROR else b"",
            ended_with_last_read=outcome is Outcome.OK and self._finished_in_silence(),
        )

    def _settle_role(self) -> None:
        """A role chunk that brought tokens, as only later ones showed, was output that shows nothing."""
        at = self._kinds.find(_CODE[ChunkKind.ROLE])
        if self._decoder.role_tokens and at >= 0:
            self._kinds[at] = _CODE[ChunkKind.EMPTY]
            self._counts[at] = self._decoder.role_tokens

    def _tokens(self, output_tokens: int | None) -> bytes:
        kinds = [_KINDS[code] for code in self._kinds]
        counts: list[int | None] = [None] * len(kinds)
        for at, count in self._counts.items():
            counts[at] = count
        return array("i", [-1 if n is None else n for n in resolve_tokens(kinds, counts, output_tokens)]).tobytes()

    def _finished_in_silence(self) -> bool:
        """The answer had its finish_reason or end mark, and we only waited for a server that left the response open."""
        waited = self._call.ending in (Ending.TIMEOUT, Ending.CUT)
        return waited and bool(self._streamed) and self._decoder.verdict() is None

    def _outcome(self) -> tuple[Outcome, str]:
        call = self._call
        ending = call.ending
        if ending is Ending.CONNECT:
            return Outcome.CONNECT_ERROR, call.error
        if self._finished_in_silence():
            return Outcome.OK, ""
        if ending is Ending.TIMEOUT:
            return Outcome.TIMEOUT, call.error
        if ending is Ending.CANCELLED:
            return Outcome.CANCELLED, call.error
        if ending is Ending.CUT:
            return (Outcome.UNFINISHED if call.sent_ns else Outcome.UNSENT), call.error
        if ending is Ending.LOST:
            return Outcome.DISCONNECTED, call.error
        if call.garbage:
            self._keep(call.garbage)
            return Outcome.STREAM_ERROR, call.error
        if not 200 <= call.status < 300:
            message = error_message(call.status, b"".join(self._body), call.content_encoding.decode("latin-1"))
            return (Outcome.REJECTED if call.status in (429, 503) else Outcome.HTTP_ERROR), message
        if call.content_encoding not in (b"", b"identity"):
            self._keep(b"".join(self._body))
            encoding = call.content_encoding.decode("latin-1")
            return Outcome.STREAM_ERROR, f"body came encoded as {encoding!r}, which was not asked for"
        if self._streamed:
            return self._stream_outcome()
        return self._body_outcome()

    def _stream_outcome(self) -> tuple[Outcome, str]:
        call = self._call
        said = self._decoder.verdict()
        if said is not None and self._decoder.error is not None:
            return Outcome.STREAM_ERROR, said
        if call.ending is Ending.BROKEN and self._decoder.finish_reason is None:
            self._keep(self._tail)
            return Outcome.STREAM_ERROR, call.error
        if said is None:
            return Outcome.OK, ""
        self._keep(self._tail)
        if self._tail and not self._kinds:
            # Called a stream, but something else: an error's JSON, a page.
            said = self._dialect.decode_body(self._tail).error or said
        return Outcome.STREAM_ERROR, said

    def _body_outcome(self) -> tuple[Outcome, str]:
        call = self._call
        body = b"".join(self._body)
        if call.ending is Ending.BROKEN:
            self._keep(body)
            return Outcome.STREAM_ERROR, call.error
        result = self._dialect.decode_body(body)
        if result.error is not None:
            self._keep(body)
            return Outcome.STREAM_ERROR, result.error
        self._usage, self._finish_reason = result.usage, result.finish_reason
        self._add(result.kind, *self._body_end())
        self._texts += [result.reasoning, result.text, result.tool]
        return Outcome.OK, ""

    def _body_end(self) -> tuple[int, bytes, int, bool]:
        """When an unstreamed answer was whole: at its framing's end, or with its last bytes where the close is that."""
        call = self._call
        if call.end_kernel_ns:
            return call.end_ns, to_stamp(call.end_kernel_ns), self._last[2], True
        return self._last


def decode(call: Call, dialect: str) -> Decoded:
    """Decode a call that has ended and whose reads are all at hand."""
    decoder = CallDecoder(call, dialect)
    reads = call.reads
    decoder.feed(
        [read[0] for read in reads],
        [read[1] for read in reads],
        [read[2] for read in reads],
        [read[3] for read in reads],
        [read[4] for read in reads],
    )
    return decoder.finish()


class OutputCounter:
    """How many output chunks a call in flight has received so far; the call keeps its reads.

    Chunks that show nothing, and of which nothing else says that they carried a token, count where nothing else came:
    so it may be with weights that write nothing. The first of them is none, as many servers begin with one.
    """

    def __init__(self, call: Call, dialect: str) -> None:
        self._reads = call.reads
        self._done = 0
        self._sse = SseParser()
        self._decoder = DIALECTS[dialect].stream_decoder()
        self._output = 0
        self._blank = 0

    def count(self) -> int:
        """Output chunks up to now."""
        reads = self._reads
        for at in range(self._done, len(reads)):
            _, _, _, form, data, _ = reads[at]
            for event in self._sse.feed(_unframed(data) if form == FRAMED else data):
                chunk = self._decoder.feed(event)
                if chunk is not None and chunk.kind in OUTPUT_KINDS:
                    self._output += chunk.kind in VISIBLE_KINDS or bool(chunk.tokens)
                    self._blank += chunk.tokens is None and chunk.kind is ChunkKind.EMPTY
        self._done = len(reads)
        return self._output + (self._decoder.role_tokens > 0) or max(self._blank - 1, 0)


_WITHOUT_LOOKING = {
    Ending.CONNECT: Outcome.CONNECT_ERROR,
    Ending.LOST: Outcome.DISCONNECTED,
    Ending.CANCELLED: Outcome.CANCELLED,
    Ending.CUT: Outcome.UNFINISHED,
}
NEEDS_LOOKING = frozenset({Outcome.STREAM_ERROR, Outcome.TIMEOUT})
"""Outcomes that only the bytes of a 2xx answer tell from `ok`: it may have said all before it broke or fell silent."""


def outcome_of(call: Call, dialect: str, *, look_inside: bool) -> Outcome | None:
    """The outcome of an ended call, as `decode` would say.

    None without `look_inside` where the call's bytes decide: it is `ok` or one of `NEEDS_LOOKING`.
    """
    if call.ending in _WITHOUT_LOOKING:
        return _WITHOUT_LOOKING[call.ending]
    if call.ending is Ending.TIMEOUT and not 200 <= call.status < 300:
        return Outcome.TIMEOUT
    if call.garbage:
        return Outcome.STREAM_ERROR
    if not 200 <= call.status < 300:
        return Outcome.REJECTED if call.status in (429, 503) else Outcome.HTTP_ERROR
    if not look_inside:
        return None
    return Outcome(decode(call, dialect).outcome)
