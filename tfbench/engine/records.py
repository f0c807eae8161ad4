"""What the engine knows about the requests it served: stage events and each chunk's true send time.

All times are int64 ns since the Unix epoch on the engine's own clock: CLOCK_MONOTONIC plus an offset fixed at start.
A finished request is kept as bytes, which the garbage collector never walks, however many there are.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from tfbench.core.clocks import ClockBase, read_anchor
from tfbench.engine.api import CHAT_PATH, COMPLETIONS_PATH, Submission
from tfbench.engine.scheduler import Sequence

_SENT_BYTES = array("q").itemsize
_TOKEN_BYTES = array("i").itemsize


@dataclass(slots=True, eq=False)
class Record:
    """One request while it is served. Times are CLOCK_MONOTONIC; `seq` is None for a rejected one."""

    request_id: str
    response_id: str
    submission: Submission
    status: int
    arrival_ns: int
    seq: Sequence | None = None
    headers_sent_ns: int | None = None
    end_ns: int | None = None
    finish_reason: str | None = None
    sent_ns: "array[int]" = field(default_factory=lambda: array("q"))
    tokens: "array[int]" = field(default_factory=lambda: array("i"))


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
            "prompt_tokens": submission.prompt_tokens,
            "max_tokens": submission.output_tokens,
            "output_tokens": record.seq.generated if record.seq else 0,
            "finish_reason": record.finish_reason,
            "arrival_ns": record.arrival_ns + offset,
            "headers_sent_ns": None if record.headers_sent_ns is None else record.headers_sent_ns + offset,
            "end_ns": None if record.end_ns is None else record.end_ns + offset,
            "events": [] if record.seq is None else stage_events(record.seq, offset),
        }

    def _json(self, index: int) -> bytes:
        return _with_chunks(orjson.loads(self._heads[index]), self._chunks[index], self._clock.offset_ns)

    def _open_json(self, record: Record) -> bytes:
        return _with_chunks(self._head(record), _pack(record), self._clock.offset_ns)


def stage_events(seq: Sequence, offset_ns: int) -> list[dict[str, Any]]:
    """Queue, prefill and decode of a sequence as far as it got; an end that hasn't come yet is None.

    Starts and ends are those of the steps, by the step-time model; the writes follow a little later.
    """
    starts: list[tuple[str, int, dict[str, Any]]] = [("queue", seq.arrival_ns, {})]
    if seq.first_step_ns is not None:
        starts.append(("prefill", seq.first_step_ns, {"tokens": seq.prefilled, "steps": seq.prefill_steps}))
    if seq.first_token_ns is not None:
        starts.append(("decode", seq.first_token_ns, {"tokens": seq.generated - 1, "steps": seq.generated - 1}))
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


def _pack(record: Record) -> bytes:
    return record.sent_ns.tobytes() + record.tokens.tobytes()


def _packed_count(packed: bytes) -> int:
    return len(packed) // (_SENT_BYTES + _TOKEN_BYTES)


def _with_chunks(head: dict[str, Any], packed: bytes, offset_ns: int) -> bytes:
    split = _packed_count(packed) * _SENT_BYTES
    sent, tokens = array("q"), array("i")
    sent.frombytes(packed[:split])
    tokens.frombytes(packed[split:])
    sent_ns = [stamp + offset_ns for stamp in sent]
    head["chunks"] = {"kind": ["text"] * len(sent_ns), "tokens": tokens.tolist(), "sent_ns": sent_ns}
    if sent_ns and head["endpoint"] == CHAT_PATH:
        _insert(head["chunks"], 0, "role", sent_ns[0])
    if sent_ns and head["include_usage"] and head["finish_reason"] in ("length", "stop"):
        _insert(head["chunks"], len(sent_ns), "usage", sent_ns[-1])
    return orjson.dumps(head)


def _insert(chunks: dict[str, list[Any]], at: int, kind: str, sent_ns: int) -> None:
    """Role and usage travel in one write with the token next to them."""
    chunks["kind"].insert(at, kind)
    chunks["tokens"].insert(at, 0)
    chunks["sent_ns"].insert(at, sent_ns)
