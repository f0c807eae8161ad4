"""From the workers' spools to the ledger's tables: one clock, one row per scheduled request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.core.clocks import STEP_LIMIT_NS, Anchor, ClockBase
from tfbench.core.kinds import Mode, Outcome, Role
from tfbench.load.decode import KIND_NAMES
from tfbench.load.feeders import phase_of
from tfbench.load.job import LoadJob
from tfbench.load.requests import request_id_of
from tfbench.load.spool import EndRecord, SentRecord, read_spool
from tfbench.load.supervise import LoadEnd

I64 = NDArray[np.int64]

PLAUSIBLE_LAG_NS = 60_000_000_000
"""A kernel stamp further than this before its read is not of this clock."""


@dataclass(frozen=True)
class WorkerFacts:
    """What one worker left: ends and bare sends by index, its summary (None if it died before one)."""

    worker: int
    ends: dict[int, EndRecord]
    sends: dict[int, SentRecord]
    summary: dict[str, Any] | None


def read_worker(path: Any, worker: int) -> WorkerFacts:
    """All records of one spool."""
    ends: dict[int, EndRecord] = {}
    sends: dict[int, SentRecord] = {}
    summary: dict[str, Any] | None = None
    for kind, record in read_spool(path):
        if kind == "sent":
            sent = SentRecord(*record)
            sends[sent.attempt] = sent
        elif kind == "end":
            end = EndRecord(*record)
            ends[SentRecord(*end.sent).attempt] = end
        elif kind == "summary":
            summary = record[0]
    return WorkerFacts(worker, ends, sends, summary)


class StampMap:
    """Vectorised CLOCK_REALTIME → client time through one worker's anchors."""

    def __init__(self, base: ClockBase, anchors: Sequence[Anchor]) -> None:
        self._base = base
        self._monos = np.array([a.mono_ns for a in anchors], dtype=np.int64)
        self._offsets = np.array([a.offset_ns for a in anchors], dtype=np.int64)
        self._widths = np.array([a.width_ns for a in anchors], dtype=np.int64)

    @property
    def steps(self) -> int:
        """Stretches between anchors that hold a realtime step."""
        if len(self._monos) < 2:
            return 0
        limits = STEP_LIMIT_NS + self._widths[1:] + self._widths[:-1]
        return int(np.sum(np.abs(np.diff(self._offsets)) > limits))

    def to_client(self, kernel: I64, user_mono: I64) -> tuple[I64, NDArray[np.bool_]]:
        """(client ns, usable) of stamps read at `user_mono`; where not usable, the user time serves."""
        user = user_mono + self._base.offset_ns
        if not len(self._monos):
            return user, np.zeros(len(user), dtype=bool)
        last = len(self._monos) - 1
        after = np.clip(np.searchsorted(self._monos, user_mono, side="right"), 0, last)
        before = np.clip(after - 1, 0, last)
        change = self._offsets[after] - self._offsets[before]
        span = np.maximum(self._monos[after] - self._monos[before], 1)
        part = np.clip((user_mono - self._monos[before]) / span, 0.0, 1.0)
        offset = self._offsets[before] + (change * part).astype(np.int64)
        stepped = np.abs(change) > STEP_LIMIT_NS + self._widths[before] + self._widths[after]
        mapped = kernel - offset + self._base.offset_ns
        usable = (kernel > 0) & ~stepped & (mapped <= user + STEP_LIMIT_NS) & (mapped > user - PLAUSIBLE_LAG_NS)
        return np.where(usable, np.minimum(mapped, user), user), usable


def _column(parts: list[bytes], dtype: str) -> NDArray[Any]:
    return np.frombuffer(b"".join(parts), dtype=dtype)


@dataclass(frozen=True)
class Assembled:
    """The ledger's per-run tables (pyarrow), the workers' facts and what assembling found out."""

    tables: dict[str, Any]
    first_ns: int | None
    last_end_ns: int | None
    user_lag_ns: I64
    clock_steps: int


def assemble(
    run_id: str,
    jobs: Sequence[LoadJob],
    end: LoadEnd,
    facts: Sequence[WorkerFacts],
    base: ClockBase,
    host: str,
) -> Assembled:
    """Arrow tables `attempts`, `streams`, `texts`, `raw`, `clock_anchors` of one load.

    Every tick of a frozen schedule gets a row: ticks no worker spoke of are `unsent`; sent ones
    without an end (their worker died) are `unfinished`.
    """
    import pyarrow as pa

    from tfbench.ledger.schemas import ATTEMPTS, CLOCK_ANCHORS, RAW, STREAMS, TEXTS

    rows = _Rows(run_id, host)
    steps = 0
    anchors_rows: list[tuple[int, int, int]] = []
    for one in facts:
        anchors = [Anchor(*a) for a in (one.summary or {}).get("anchors", ())]
        stamp_map = StampMap(base, anchors)
        steps += stamp_map.steps
        anchors_rows.extend((a.mono_ns, a.real_ns, a.width_ns) for a in anchors)
        rows.add_worker(one, stamp_map, base)
    _add_unsent(rows, jobs[0], end, base)
    rows.sort()
    attempts = pa.table({name: pa.array(rows.columns[name], ATTEMPTS.field(name).type) for name in ATTEMPTS.names})
    streams = rows.streams_table(pa, STREAMS)
    texts = pa.table(
        {
            "run_id": pa.array([run_id] * len(rows.texts), pa.string()),
            "attempt_id": pa.array([t[0] for t in rows.texts], pa.int64()),
            "prompt": pa.array([t[1] for t in rows.texts], pa.string()),
            "output": pa.array([t[2] for t in rows.texts], pa.string()),
        },
        schema=TEXTS,
    )
    raw = pa.table(
        {
            "run_id": pa.array([run_id] * len(rows.raw), pa.string()),
            "attempt_id": pa.array([r[0] for r in rows.raw], pa.int64()),
            "bytes": pa.array([r[1] for r in rows.raw], pa.binary()),
        },
        schema=RAW,
    )
    clock_anchors = pa.table(
        {
            "run_id": pa.array([run_id] * len(anchors_rows), pa.string()),
            "host": pa.array([host] * len(anchors_rows), pa.string()),
            "mono_ns": pa.array([a[0] for a in anchors_rows], pa.int64()),
            "real_ns": pa.array([a[1] for a in anchors_rows], pa.int64()),
            "width_ns": pa.array([a[2] for a in anchors_rows], pa.int64()),
        },
        schema=CLOCK_ANCHORS,
    )
    ends = [ns for ns in rows.columns["end_ns"] if ns is not None]
    scheduled = rows.columns["scheduled_ns"]
    return Assembled(
        {
            "attempts": attempts.cast(ATTEMPTS),
            "streams": streams,
            "texts": texts,
            "raw": raw,
            "clock_anchors": clock_anchors,
        },
        min(scheduled) if scheduled else None,
        max(ends) if ends else None,
        np.concatenate(rows.user_lags) if rows.user_lags else np.zeros(0, dtype=np.int64),
        steps,
    )


def with_row(attempts: Any, row: Mapping[str, Any]) -> Any:
    """`attempts` (a table of the ledger) with one more row in front; columns the row lacks are null."""
    import pyarrow as pa

    return pa.concat_tables([pa.Table.from_pylist([dict(row)], schema=attempts.schema), attempts])


def _add_unsent(rows: "_Rows", job: LoadJob, end: LoadEnd, base: ClockBase) -> None:
    if job.mode == Mode.CLOSED:
        return
    seen = set(rows.columns["attempt_id"])
    start = end.start_ns + base.offset_ns
    for index, offset in enumerate(job.plan.offsets_ns.tolist()):
        if index not in seen:
            rows.add_unsent(index, start + offset, phase_of(offset, job.warmup_ns, job.duration_ns), job)


class _Rows:
    """Columns of `attempts` and `streams` while they are gathered."""

    def __init__(self, run_id: str, host: str) -> None:
        from tfbench.ledger.schemas import ATTEMPTS

        self.run_id = run_id
        self.host = host
        self.columns: dict[str, list[Any]] = {name: [] for name in ATTEMPTS.names}
        self.texts: list[tuple[int, str | None, str | None]] = []
        self.raw: list[tuple[int, bytes]] = []
        self.user_lags: list[I64] = []
        self._stream_ids: list[int] = []
        self._stream_sizes: list[int] = []
        self._t: list[I64] = []
        self._user: list[I64] = []
        self._kinds: list[bytes] = []
        self._tokens: list[bytes] = []
        self._blur: list[I64] = []

    def _add(self, **values: Any) -> None:
        values.setdefault("role", Role.LOAD.value)
        values.setdefault("try", 0)
        for name, column in self.columns.items():
            column.append(values.get(name))

    def add_unsent(self, index: int, scheduled_ns: int, phase: str, job: LoadJob) -> None:
        """A tick that never reached the kernel."""
        self._add(
            run_id=self.run_id,
            attempt_id=index,
            request_id=request_id_of(self.run_id, index),
            task_id=str(index),
            phase=str(phase),
            host=self.host,
            worker=index % job.workers,
            scheduled_ns=scheduled_ns,
            outcome=Outcome.UNSENT.value,
        )

    def add_worker(self, facts: WorkerFacts, stamp_map: StampMap, base: ClockBase) -> None:
        """Everything one worker spoke of."""
        ends = list(facts.ends.values())
        sizes = [len(e.kinds) for e in ends]
        user_mono = _column([e.user for e in ends], "<i8")
        kernel = _column([e.kernel for e in ends], "<i8")
        lower = _column([e.lower for e in ends], "<i8")
        exact = _column([e.exact for e in ends], "u1").astype(bool)
        t, usable = stamp_map.to_client(kernel, user_mono)
        user = user_mono + base.offset_ns
        blur = np.where(exact & usable, 0, np.maximum(t - (lower + base.offset_ns), 0))
        self.user_lags.append((user - t)[usable & exact])
        edge_mono = np.array([(e.first_ns, e.end_ns) for e in ends], dtype=np.int64).reshape(-1, 2)
        edge_kernel = np.array([(e.first_kernel_ns, e.end_kernel_ns) for e in ends], dtype=np.int64).reshape(-1, 2)
        first_t, _ = stamp_map.to_client(edge_kernel[:, 0], edge_mono[:, 0])
        end_t, _ = stamp_map.to_client(edge_kernel[:, 1], edge_mono[:, 1])
        at = 0
        for i, end in enumerate(ends):
            size = sizes[i]
            part = usable[at : at + size]
            self._add_end(SentRecord(*end.sent), end, facts.worker, base, int(first_t[i]), int(end_t[i]), part)
            at += size
        self._stream_ids.extend(SentRecord(*e.sent).attempt for e in ends)
        self._stream_sizes.extend(sizes)
        self._t.append(t)
        self._user.append(user)
        self._kinds.extend(e.kinds for e in ends)
        self._tokens.extend(e.tokens for e in ends)
        self._blur.append(blur)
        for index, sent in facts.sends.items():
            if index not in facts.ends:
                self._add(
                    **self._sent_values(sent, facts.worker, base),
                    outcome=Outcome.UNFINISHED.value,
                    error="the worker died before the request's end was written",
                )

    def _sent_values(self, sent: SentRecord, worker: int, base: ClockBase) -> dict[str, Any]:
        def client(mono_ns: int) -> int | None:
            return mono_ns + base.offset_ns if mono_ns else None

        return {
            "run_id": self.run_id,
            "attempt_id": sent.attempt,
            "request_id": sent.request_id,
            "task_id": str(sent.attempt),
            "session_id": f"user-{sent.user}" if sent.user >= 0 else None,
            "phase": str(sent.phase),
            "host": self.host,
            "worker": worker,
            "connection_id": sent.connection_id if sent.connection_id >= 0 else None,
            "new_connection": sent.new_connection if sent.connection_id >= 0 else None,
            "scheduled_ns": client(sent.scheduled_ns),
            "dispatched_ns": client(sent.dispatched_ns),
            "slot_ns": client(sent.slot_ns),
            "connected_ns": client(sent.connected_ns),
            "sent_ns": client(sent.sent_ns),
            "prompt_sha256": sent.prompt_sha256,
        }

    def _add_end(
        self,
        sent: SentRecord,
        end: EndRecord,
        worker: int,
        base: ClockBase,
        first_t: int,
        end_t: int,
        usable: NDArray[np.bool_],
    ) -> None:
        if not len(usable):
            source = "kernel" if end.first_kernel_ns else ("user" if end.first_ns else None)
        elif usable.all():
            source = "kernel"
        else:
            source = "mixed" if usable.any() else "user"
        self._add(
            **self._sent_values(sent, worker, base),
            stamp_source=source,
            first_byte_ns=first_t if end.first_ns else None,
            end_ns=end_t,
            outcome=end.outcome,
            http_status=end.status or None,
            error=end.error or None,
            finish_reason=end.finish_reason,
            prompt_tokens=end.prompt_tokens,
            cached_tokens=end.cached_tokens,
            output_tokens=end.output_tokens,
            reasoning_tokens=end.reasoning_tokens,
            token_source="usage" if end.output_tokens is not None else None,
            output_sha256=end.output_sha256,
        )
        if end.prompt is not None or end.output is not None:
            self.texts.append((sent.attempt, end.prompt, end.output))
        if end.raw:
            self.raw.append((sent.attempt, end.raw))

    def sort(self) -> None:
        """Rows in schedule order, whatever the workers' order of ends was."""
        ids = self.columns["attempt_id"]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        self.columns = {name: [column[i] for i in order] for name, column in self.columns.items()}

    def streams_table(self, pa: Any, schema: Any) -> Any:
        """The `streams` table in attempt order, its lists cut from whole columns."""
        sizes = np.array(self._stream_sizes, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)

        def joined(parts: list[I64]) -> I64:
            return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

        codes = _column(self._kinds, "u1")
        names = pa.array(KIND_NAMES)
        kinds = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), names).cast(pa.string())
        tokens = _column(self._tokens, "<i4")
        lists = {
            "t_ns": pa.array(joined(self._t)),
            "user_ns": pa.array(joined(self._user)),
            "kind": kinds,
            "tokens": pa.array(tokens, pa.int32(), mask=tokens < 0),
            "blur_ns": pa.array(joined(self._blur)),
        }
        columns: dict[str, Any] = {
            "run_id": pa.array([self.run_id] * len(sizes), pa.string()),
            "attempt_id": pa.array(self._stream_ids, pa.int64()),
        }
        for name, values in lists.items():
            columns[name] = pa.ListArray.from_arrays(pa.array(offsets), values)
        return pa.table(columns, schema=schema).sort_by("attempt_id")
