"""The parent reads a worker's spool back: every call decoded, its bytes let go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.load.call import Call, Ending
from tfbench.load.decode import Decoded, decode
from tfbench.load.feeders import Tick
from tfbench.load.spool import RawRecord, SentRecord, read_spool


@dataclass(frozen=True)
class Ended:
    """One call as the spool tells it: how it was sent, how the wire let go of it (None: unknown), what it came to."""

    sent: SentRecord
    raw: RawRecord | None
    decoded: Decoded
    prompt: str | None
    output: str | None


@dataclass(frozen=True)
class WorkerFacts:
    """What one worker left: every call it sent or gave up, retries planned but never taken up, its summary.

    The summary is None when the worker died before it.
    """

    worker: int
    ends: list[Ended]
    planned: list[Tick]
    summary: dict[str, Any] | None


def _call_of(sent: SentRecord, raw: RawRecord | None, reads: list[Any]) -> Call:
    """The call as the decoder wants it."""
    tick = Tick(sent.attempt, sent.scheduled_ns, sent.slot_ns, sent.phase, sent.user, sent.task, sent.tries)
    call = Call(tick, sent.request_id, b"", sent.prompt_sha256, None)
    call.sent_ns = sent.sent_ns
    call.reads.extend(reads)
    if raw is None:
        # The worker died; what came before that is still worth reading.
        call.ending = Ending.CUT
        call.error = "the worker died before the request's end was written"
        call.status = 200 if reads else 0
        return call
    call.ending = Ending(raw.ending)
    call.error = raw.error
    call.status = raw.status
    call.content_type = raw.content_type
    call.content_encoding = raw.content_encoding
    call.garbage = raw.garbage
    call.last_ns = raw.last_ns
    call.end_ns = raw.end_ns
    call.end_kernel_ns = raw.end_kernel_ns
    return call


def read_worker(path: Path, worker: int) -> WorkerFacts:
    """All records of one spool, its calls decoded."""
    ends: list[Ended] = []
    sends: dict[int, SentRecord] = {}
    planned: dict[int, Tick] = {}
    parts: dict[int, list[Any]] = {}
    summary: dict[str, Any] | None = None
    dialect, keep_text = "", False

    def ended(sent: SentRecord, raw: RawRecord | None) -> None:
        reads = parts.pop(sent.attempt, [])
        if raw is not None:
            reads.extend(raw.reads)
        decoded = decode(_call_of(sent, raw, reads), dialect)
        output = decoded.output if keep_text else None
        # Neither the reads nor the text are needed any more.
        ends.append(
            Ended(
                sent,
                raw._replace(reads=[]) if raw is not None else None,
                decoded._replace(output=""),
                raw.prompt if raw is not None else None,
                output,
            )
        )

    for kind, record in read_spool(path):
        if kind == "sent":
            sent = SentRecord(*record)
            sends[sent.attempt] = sent
        elif kind == "part":
            parts.setdefault(record[0], []).extend(record[1])
        elif kind == "raw":
            raw = RawRecord(*record)
            sent = SentRecord(*raw.sent)
            sends.pop(sent.attempt, None)
            ended(sent, raw)
        elif kind == "planned":
            tick = Tick(*record)
            planned[tick.attempt] = tick
        elif kind == "job":
            dialect, keep_text = record
        elif kind == "summary":
            summary = record[0]
    for sent in sends.values():
        ended(sent, None)
    taken_up = {one.sent.attempt for one in ends}
    return WorkerFacts(worker, ends, [tick for tick in planned.values() if tick.attempt not in taken_up], summary)
