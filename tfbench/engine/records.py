"""What the engine knows about the requests it served: stage events and each chunk's true send time.

All times are int64 ns since the Unix epoch on the engine's own clock: CLOCK_MONOTONIC plus an offset fixed at start.
A finished request is kept as bytes, which the garbage collector never walks, however many there are.
"""

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import orjson

from tfbench.core.clocks import ClockBase, read_anchor
from tfbench.engine.api import CHAT_PATH, COMPLETIONS_PATH, Submission
from tfbench.engine.misbehave import Act
from tfbench.engine.scheduler import Sequence

_TIME_BYTES = array("q").itemsize
_TOKEN_BYTES = array("i").itemsize


@dataclass(slots=True, eq=False)
class Record:
    """One request while it is served. Times are CLOCK_MONOTONIC; `seq` is None for a rejected one.

    `status` is None where the connection was cut before one. Of each chunk it has the time right before its write, the
    time it was due by the step-time model, and its tokens, or what else it is (`ROLE`, `ERROR`). `batch` is how many
    sequences decoded in each of the steps that gave it a token after its first.
    """

    ROLE: ClassVar[int] = 0
    ERROR: ClassVar[int] = -1

    request_id: str
    response_id: str
    submission: Submission
    status: int | None
    arrival_ns: int
    seq: Sequence | None = None
    act: Act | None = None
    headers_sent_ns: int | None = None
    end_ns: int | None = None
    finish_reason: str | None = None
    sent_ns: "array[int]" = field(default_factory=lambda: array("q"))
    due_ns: "array[int]" = field(default_factory=lambda: array("q"))
    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    batch: "array[int]" = field(default_factory=lambda: array("i"))

    def add_chunk(self, sent_ns: int, due_ns: int, tokens: int) -> None:
        """Note a chunk."""
        self.sent_ns.append(sent_ns)
        self.due_ns.append(due_ns)
        self.tokens.append(tokens)


class RecordStore:
    """The requests in flight and the last finished ones: `keep_requests` of them, `keep_chunks` chunks in all."""

    def __init__(self, clock: ClockBase, *, keep_requests: int, keep_chunks: int) -> None:
        self._clock = clock
        self._keep_requests = keep_requests
        self._keep_chunks = keep_chunks
        self._open: dict[int, Record] = {}
        # Three dicts of plain ints and bytes rather than one of tuples: the collector doesn't track those.
        self._heads: dict[int, bytes] = {}
        self._chunks: dict[int, bytes] = {}
        self._arrivals: dict[int, int] = {}
        self._oldest = 0
        self._next = 0
        self._chunk_count = 0

    def __len__(self) -> int:
        return len(self._heads)

    def open(self, record: Record) -> None:
        """Take up a request that starts."""
        self._open[id(record)] = record

    def close(self, record: Record) -> None:
        """Keep a request that has ended, and forget the oldest ones over the limits."""
        self._open.pop(id(record), None)
        head = self._head(record)
        # Copied: orjson's own bytes sit in a buffer that is many times larger.
        self._heads[self._next] = memoryview(orjson.dumps(head)).tobytes()
        self._chunks[self._next] = _pack(record)
        self._arrivals[self._next] = head["arrival_ns"]
        self._next += 1
        self._chunk_count += len(record.sent_ns)
        while len(self._heads) > self._keep_requests or self._chunk_count > self._keep_chunks:
            del self._heads[self._oldest], self._arrivals[self._oldest]
            self._chunk_count -= _packed_count(self._chunks.pop(self._oldest))
            self._oldest += 1

    def clock_facts(self) -> dict[str, Any]:
        """What maps the engine's times to CLOCK_MONOTONIC (`time - offset_ns`) and CLOCK_REALTIME, read now."""
        anchor = read_anchor()
        return {
            "name": "tfbench-engine",
            "source": "CLOCK_MONOTONIC",
            "offset_ns": self._clock.offset_ns,
            "realtime_offset_ns": self._clock.offset_ns - anchor.offset_ns,
            "anchor": {"mono_ns": anchor.mono_ns, "real_ns": anchor.real_ns, "width_ns": anchor.width_ns},
        }

    def find(self, request_id: str) -> list[bytes]:
        """JSON of every kept request with this X-Request-Id, oldest first; a client may have used it more than once."""
        start = b'{"request_id":' + orjson.dumps(request_id) + b","
        found = [self._json(index) for index, head in self._heads.items() if head.startswith(start)]
        return found + [self._open_json(record) for record in self._open.values() if record.request_id == request_id]

    def since(self, arrival_ns: int) -> Iterator[bytes]:
        """JSON of every kept request that arrived at `arrival_ns` (not negative) or later; those in flight last."""
        index = self._oldest
        while index < self._next:  # requests may end, and old ones be forgotten, while the caller waits between two
            index = max(index, self._oldest)
            if self._arrivals.get(index, -1) >= arrival_ns:
                yield self._json(index)
            index += 1
        for record in list(self._open.values()):
            if record.arrival_ns + self._clock.offset_ns >= arrival_ns:
                yield self._open_json(record)

    def _head(self, record: Record) -> dict[str, Any]:
        offset = self._clock.offset_ns
        submission = record.submission
        return {
            "request_id": record.request_id,
            "response_id": record.response_id,
            "endpoint": CHAT_PATH if submission.chat else COMPLETIONS_PATH,
            "stream": submission.stream,
            "include_usage": submission.include_usage,
            "status": record.status,
            "misbehaviour": None if record.act is None else str(record.act),
            "prompt_tokens": submission.prompt_tokens,
            "max_tokens": submission.output_tokens,
            "output_tokens": record.seq.generated if record.seq else 0,
            "finish_reason": record.finish_reason,
            "arrival_ns": record.arrival_ns + offset,
            "headers_sent_ns": None if record.headers_sent_ns is None else record.headers_sent_ns + offset,
            "end_ns": None if record.end_ns is None else record.end_ns + offset,
            "events": [] if record.seq is None else stage_events(record.seq, record.batch, offset),
        }

    def _json(self, index: int) -> bytes:
        return _with_chunks(orjson.loads(self._heads[index]), self._chunks[index], self._clock.offset_ns)

    def _open_json(self, record: Record) -> bytes:
        return _with_chunks(self._head(record), _pack(record), self._clock.offset_ns)


def stage_events(seq: Sequence, batch: npt.ArrayLike, offset_ns: int) -> list[dict[str, Any]]:
    """What a sequence went through as far as it got: queue, prefill, decode and, in between, preempted.

    `batch` says how many sequences decoded in each of the steps that it decoded in. An end that hasn't come is None.
    Starts and ends are those of the steps, by the step-time model; the writes follow a little later.
    """
    starts: list[tuple[str, int, dict[str, Any]]] = [("queue", seq.arrival_ns, {})]
    sizes, spans = np.asarray(batch, dtype=np.int32), list(seq.spans)
    begin_ns = seq.first_step_ns
    for until_ns in (*seq.preempted_ns, math.inf):
        if begin_ns is None:
            break
        chunks = [chunk for chunk in seq.chunks if begin_ns <= chunk[0] < until_ns]
        attrs: dict[str, Any] = {
            "tokens": sum(tokens for _, _, tokens in chunks),
            "steps": len(chunks),
            "chunks": [[start + offset_ns, end + offset_ns, tokens] for start, end, tokens in chunks],
        }
        if begin_ns == seq.first_step_ns:
            attrs["cached_tokens"] = seq.cached_tokens
        starts.append(("prefill", begin_ns, attrs))
        if spans and chunks and spans[0][0] == chunks[-1][1]:
            token_ns, first, last = spans.pop(0)
            steps = last - first if last >= 0 else len(sizes)
            decode = {"tokens": steps, "steps": steps, "batch": _runs(sizes[:steps])}
            starts.append(("decode", token_ns, decode))
            sizes = sizes[steps:]
        if until_ns != math.inf:
            starts.append(("preempted", int(until_ns), {}))
        begin_ns = next((start for start, _, _ in seq.chunks if start >= until_ns), None)
    if seq.cancelled:
        starts[-1][2]["cancelled"] = True
    ends = [start for _, start, _ in starts[1:]] + [seq.end_ns]
    return [
        {
            "stage": stage,
            "start_ns": start + offset_ns,
            "end_ns": None if end is None else end + offset_ns,
            "attrs": attrs,
        }
        for (stage, start, attrs), end in zip(starts, ends, strict=True)
    ]


def _runs(values: npt.NDArray[np.int32]) -> list[list[int]]:
    """[value, how often in a row] of successive values."""
    if not len(values):
        return []
    starts = [0, *((values[1:] != values[:-1]).nonzero()[0] + 1).tolist()]
    lengths = [end - start for start, end in zip(starts, [*starts[1:], len(values)], strict=True)]
    return [[value, length] for value, length in zip(values[starts].tolist(), lengths, strict=True)]


def _pack(record: Record) -> bytes:
    return record.sent_ns.tobytes() + record.due_ns.tobytes() + record.tokens.tobytes()


def _packed_count(packed: bytes) -> int:
    return len(packed) // (2 * _TIME_BYTES + _TOKEN_BYTES)


def _with_chunks(head: dict[str, Any], packed: bytes, offset_ns: int) -> bytes:
    split = _packed_count(packed) * _TIME_BYTES
    sent, due, tokens = array("q"), array("q"), array("i")
    sent.frombytes(packed[:split])
    due.frombytes(packed[split : 2 * split])
    tokens.frombytes(packed[2 * split :])
    marks = {Record.ROLE: "role", Record.ERROR: "error"}
    rows = [
        (marks.get(count, "text"), max(count, 0), at + offset_ns, ready + offset_ns)
        for count, at, ready in zip(tokens, sent, due, strict=True)
    ]
    # Where nothing was asked otherwise, role and usage travel in one write with the token next to them.
    if rows and head["endpoint"] == CHAT_PATH and rows[0][0] == "text":
        rows.insert(0, ("role", 0, *rows[0][2:]))
    if rows and head["include_usage"] and head["finish_reason"] in ("length", "stop"):
        rows.append(("usage", 0, *rows[-1][2:]))
    kinds, counts, sent_ns, due_ns = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
    head["chunks"] = {"kind": kinds, "tokens": counts, "sent_ns": sent_ns, "due_ns": due_ns}
    return orjson.dumps(head)
