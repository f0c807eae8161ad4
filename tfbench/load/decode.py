"""From recorded reads to chunks and an outcome."""

from array import array
from typing import NamedTuple

from tfbench.core.jsonio import sha256_hex
from tfbench.core.kinds import OUTPUT_KINDS, ChunkKind, Outcome
from tfbench.load.call import Call, Ending
from tfbench.protocol import DIALECTS, SseParser, Usage, error_message, resolve_tokens

KIND_NAMES: tuple[str, ...] = tuple(kind.value for kind in ChunkKind)
_CODE = {kind: code for code, kind in enumerate(ChunkKind)}
_RAW_KEPT_BYTES = 1 << 20
_SSE_STARTS = (b"data", b":", b"event", b"id", b"retry", b"\xef\xbb\xbf")


class Decoded(NamedTuple):
    """What one call came to. Chunk columns are parallel; `kinds` are codes into `KIND_NAMES`.

    `user`, `kernel` and `lower` are int64 bytes in machine order (kernel: CLOCK_REALTIME ns, 0 = none),
    `exact` one byte each, `tokens` int32 bytes (-1 = unknown). `raw` is what couldn't be understood.
    `ended_with_last_read`: the call ended with its last read, however long the wire held on to it.
    """

    outcome: str
    error: str
    finish_reason: str | None
    usage: Usage
    output_sha256: str | None
    kinds: bytes
    user: bytes
    kernel: bytes
    lower: bytes
    exact: bytes
    tokens: bytes
    output: str
    raw: bytes
    ended_with_last_read: bool


class CallDecoder:
    """Decodes one call; `step` may be called while the call is still in flight."""

    __slots__ = (
        "_body",
        "_call",
        "_counted_output",
        "_counted_reads",
        "_decoder",
        "_dialect",
        "_finish_reason",
        "_raw",
        "_rows",
        "_sse",
        "_streamed",
        "_texts",
        "_usage",
    )

    def __init__(self, call: Call, dialect: str) -> None:
        self._call = call
        self._dialect = DIALECTS[dialect]
        # One tuple a chunk: (kind, tokens, user ns, kernel ns, lower ns, exact); turned into columns at the end.
        self._rows: list[tuple[ChunkKind, int | None, int, int, int, bool]] = []
        self._texts: list[str] = []
        self._decoder = self._dialect.stream_decoder()
        self._sse = SseParser()
        self._body: list[bytes] = []
        self._raw = bytearray()
        self._streamed: bool | None = None
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._counted_reads = 0
        self._counted_output = 0

    def step(self, max_reads: int) -> bool:
        """Decode at most `max_reads` recorded reads; True when none is left."""
        reads = self._call.reads
        if reads and self._streamed is None:
            self._streamed = self._is_stream(reads[0][4])
        for _ in range(min(max_reads, len(reads))):
            user, kernel, lower, exact, data = reads.popleft()
            if not self._streamed:
                self._body.append(data)
                continue
            self._read(data, user, kernel, lower, exact)
        return not reads

    def count_output(self) -> int:
        """Output chunks so far of a call in flight; the call keeps its reads."""
        reads = self._call.reads
        for read in list(reads)[self._counted_reads :]:
            self._counted_reads += 1
            for event in self._sse.feed(read[4]):
                chunk = self._decoder.feed(event)
                self._counted_output += chunk is not None and chunk.kind in OUTPUT_KINDS
        return self._counted_output

    def _is_stream(self, first: bytes) -> bool:
        call = self._call
        if not 200 <= call.status < 300 or call.content_encoding not in (b"", b"identity"):
            return False
        if b"text/event-stream" in call.content_type:
            return True
        return first.lstrip(b" \r\n").startswith(_SSE_STARTS) and b"html" not in call.content_type

    def _read(self, data: bytes, user: int, kernel: int, lower: int, exact: bool) -> None:
        size = len(data)
        feed = self._decoder.feed
        for event in self._sse.feed(data):
            chunk = feed(event)
            if chunk is None:
                continue
            kind, text, tokens = chunk
            self._rows.append((kind, tokens, user, kernel, lower, exact and event.end == size))
            if text:
                self._texts.append(text)
            elif kind is ChunkKind.ERROR:
                self._keep(event.data)

    def _keep(self, data: bytes) -> None:
        if len(self._raw) < _RAW_KEPT_BYTES:
            self._raw += data[:_RAW_KEPT_BYTES] + b"\n"

    def finish(self) -> Decoded:
        """What the call came to; every read must have been decoded."""
        call = self._call
        if self._streamed and self._sse.tail and call.ending in (Ending.COMPLETE, Ending.LINGERED):
            # Some servers leave the last event's blank line out; a whole event is taken all the same.
            self._read(b"\n\n", call.end_ns, call.end_kernel_ns, call.sent_ns, False)
        outcome, error = self._outcome()
        if self._streamed:
            self._usage, self._finish_reason = self._decoder.usage, self._decoder.finish_reason
        usage = self._usage or Usage()
        kinds, counts, user, kernel, lower, exact = zip(*self._rows, strict=True) if self._rows else ((),) * 6
        tokens = resolve_tokens(kinds, counts, usage.output_tokens)
        output = "".join(self._texts)
        has_output = not OUTPUT_KINDS.isdisjoint(kinds)
        return Decoded(
            outcome=outcome.value,
            error=error[:300],
            finish_reason=self._finish_reason,
            usage=usage,
            output_sha256=sha256_hex(output.encode(errors="surrogatepass")) if has_output else None,
            kinds=bytes(map(_CODE.__getitem__, kinds)),
            user=array("q", user).tobytes(),
            kernel=array("q", kernel).tobytes(),
            lower=array("q", lower).tobytes(),
            exact=bytes(exact),
            tokens=array("i", [-1 if n is None else n for n in tokens]).tobytes(),
            output=output,
            raw=bytes(self._raw),
            ended_with_last_read=outcome is Outcome.OK and self._finished_in_silence(),
        )

    def _finished_in_silence(self) -> bool:
        """The answer had its finish_reason, and we only waited for a server that left the response open."""
        waited = self._call.ending in (Ending.TIMEOUT, Ending.CUT)
        return (
            waited and bool(self._streamed) and self._decoder.error is None and self._decoder.finish_reason is not None
        )

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
            message = error_message(call.status, b"".join(self._body))
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
        decoder = self._decoder
        if decoder.error is not None:
            return Outcome.STREAM_ERROR, decoder.error
        finished = decoder.finish_reason is not None
        if call.ending is Ending.BROKEN and not finished:
            self._keep(self._sse.tail)
            return Outcome.STREAM_ERROR, call.error
        if finished or decoder.done:
            return Outcome.OK, ""
        self._keep(self._sse.tail)
        return Outcome.STREAM_ERROR, "the stream ended without finish_reason or end mark"

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
        self._rows.append((result.kind, None, call.end_ns, call.end_kernel_ns, call.sent_ns, True))
        self._texts += [result.reasoning, result.text, result.tool]
        return Outcome.OK, ""


def decode(call: Call, dialect: str) -> Decoded:
    """Decode a call that has ended."""
    decoder = CallDecoder(call, dialect)
    decoder.step(len(call.reads))
    return decoder.finish()


_WITHOUT_LOOKING = {
    Ending.CONNECT: Outcome.CONNECT_ERROR,
    Ending.LOST: Outcome.DISCONNECTED,
    Ending.TIMEOUT: Outcome.TIMEOUT,
    Ending.CANCELLED: Outcome.CANCELLED,
    Ending.CUT: Outcome.UNFINISHED,
    Ending.BROKEN: Outcome.STREAM_ERROR,
}


def outcome_of(call: Call, dialect: str, *, look_inside: bool) -> Outcome | None:
    """The outcome of an ended call; a 2xx answer framed to its end is decoded only on `look_inside`, else None."""
    if call.ending in _WITHOUT_LOOKING:
        return _WITHOUT_LOOKING[call.ending]
    if not 200 <= call.status < 300:
        return Outcome.REJECTED if call.status in (429, 503) else Outcome.HTTP_ERROR
    if not look_inside:
        return None
    reads = call.reads.copy()
    outcome = Outcome(decode(call, dialect).outcome)
    call.reads = reads
    return outcome
