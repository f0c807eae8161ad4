"""The parent reads a worker's spool back: every call decoded, its bytes let go."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfbench.core.clocks import Anchor
from tfbench.load.call import Call, Ending
from tfbench.load.decode import CallDecoder, Decoded
from tfbench.load.feeders import Tick
from tfbench.load.spool import RawRecord, SentRecord, read_spool, unpack_reads

_FIELDS = 6
"""Of a `Read`."""


@dataclass(frozen=True)
class Ended:
    """One call as the spool tells it: how it was sent, how the wire let go of it (None: unknown), what it came to."""

    sent: SentRecord
    raw: RawRecord | None
    decoded: Decoded
    prompt: str | None
    output: str | None


@dataclass
class WorkerReader:
    """Reads one worker's spool in batches of decoded calls; what isn't a call is gathered on the way.

    `anchors` grow as the file is read: a batch is given out only once an anchor after its last call is
    known. `planned` holds retries never taken up and `summary` what the worker said at its end (None when
    it died before); both are complete once the batches are.
    """

    path: Path
    worker: int
    anchors: list[Anchor] = field(default_factory=list)
    planned: dict[int, Tick] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    _dialect: str = ""
    _keep_text: bool = False
    _reads: defaultdict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    """By attempt its reads, their fields in one row: a tuple each would keep the garbage collector busy."""

    def batches(self, calls: int = 10_000) -> Iterator[list[Ended]]:
        """Decoded calls, about `calls` at a time, in order of their ends."""
        batch: list[Ended] = []
        sends: dict[int, SentRecord] = {}
        for kind, record in read_spool(self.path):
            if kind == "sent":
                sent = SentRecord(*record)
                sends[sent.attempt] = sent
                if sent.sent_ns:
                    self.planned.pop(sent.attempt, None)
            elif kind == "reads":
                reads = self._reads
                for read in unpack_reads(record):
                    reads[read[-1]] += read
            elif kind == "raw":
                raw = RawRecord(*record)
                self.planned.pop(raw.attempt, None)
                batch.append(self._ended(sends.pop(raw.attempt), raw))
            elif kind == "planned":
                tick = Tick(*record)
                self.planned[tick.attempt] = tick
            elif kind == "anchor":
                self.anchors.append(Anchor(*record))
                if len(batch) >= calls:
                    yield batch
                    batch = []
            elif kind == "job":
                self._dialect, self._keep_text = record
            elif kind == "summary":
                self.summary = record[0]
        # Of a call that never reached the kernel there's nothing to tell without its end: its tick is unsent.
        batch.extend(self._ended(sent, None) for sent in sends.values() if sent.sent_ns)
        if batch:
            yield batch

    def _ended(self, sent: SentRecord, raw: RawRecord | None) -> Ended:
        fields = self._reads.pop(sent.attempt, [])
        user, stamps, lower, forms, data, _ = (fields[at::_FIELDS] for at in range(_FIELDS))
        if raw is not None and user:
            raw = raw._replace(last_ns=max(raw.last_ns, user[-1]))
        decoder = CallDecoder(_call_of(sent, raw, bool(user)), self._dialect)
        decoder.feed(user, stamps, lower, forms, data)
        decoded = decoder.finish()
        output = decoded.output if self._keep_text else None
        # The text isn't needed any more.
        return Ended(sent, raw, decoded._replace(output=""), None if raw is None else raw.prompt, output)


def _call_of(sent: SentRecord, raw: RawRecord | None, answered: bool) -> Call:
    """The call as the decoder wants it."""
    tick = Tick(sent.attempt, sent.scheduled_ns, sent.slot_ns, sent.phase, sent.user, sent.task, sent.tries)
    call = Call(tick, sent.request_id, b"", sent.prompt_sha256, None)
    call.sent_ns = sent.sent_ns
    if raw is None:
        # The worker died; what came before that is still worth reading.
        call.ending = Ending.CUT
        call.error = "the worker died before the request's end was written"
        call.status = 200 if answered else 0
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
