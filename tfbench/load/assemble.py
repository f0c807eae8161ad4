"""From the workers' facts to the ledger's tables: one clock, one row per scheduled request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.core.clocks import Anchor, ClockBase
from tfbench.core.kinds import Mode, Outcome, Phase, Role
from tfbench.core.redact import Redactor
from tfbench.load.decode import KIND_NAMES
from tfbench.load.feeders import Tick, phase_of
from tfbench.load.job import LoadJob
from tfbench.load.readback import Ended, WorkerFacts
from tfbench.load.requests import request_id_of
from tfbench.load.spool import SentRecord
from tfbench.load.stampmap import I64, StampMap
from tfbench.load.supervise import LoadEnd


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

    rows = _Rows(run_id, host, Redactor(jobs[0].secrets))
    steps = 0
    anchors_rows: list[tuple[int, int, int]] = []
    for one in facts:
        anchors = [Anchor(*a) for a in (one.summary or {}).get("anchors", ())]
        stamp_map = StampMap(base, anchors)
        steps += stamp_map.steps
        anchors_rows.extend((a.mono_ns, a.real_ns, a.width_ns) for a in anchors)
        rows.add_worker(one, stamp_map, base)
    _add_unsent(rows, jobs, facts, end, base)
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


def _add_unsent(
    rows: "_Rows", jobs: Sequence[LoadJob], facts: Sequence[WorkerFacts], end: LoadEnd, base: ClockBase
) -> None:
    job = jobs[0]
    for one in facts:
        for tick in one.planned:
            rows.add_unsent(tick._replace(scheduled_ns=tick.scheduled_ns + base.offset_ns), one.worker, job)
    if job.mode == Mode.CLOSED:
        return
    seen = set(rows.columns["attempt_id"])
    start = end.start_ns + base.offset_ns
    for index, offset in enumerate(job.plan.offsets_ns.tolist()):
        if index not in seen:
            phase = phase_of(offset, job.warmup_ns, job.duration_ns)
            rows.add_unsent(Tick(index, start + offset, 0, phase, -1, index), index % job.workers, job)


def _edges(ended: Ended) -> tuple[int, int, int, int]:
    """First byte and end of a call, then their kernel stamps; zeros where unknown."""
    raw = ended.raw
    if raw is None:
        return 0, 0, 0, 0
    if ended.decoded.ended_with_last_read:
        return raw.first_ns, raw.last_ns, raw.first_kernel_ns, 0
    return raw.first_ns, raw.end_ns, raw.first_kernel_ns, raw.end_kernel_ns


class _Rows:
    """Columns of `attempts` and `streams` while they are gathered."""

    def __init__(self, run_id: str, host: str, redactor: Redactor) -> None:
        from tfbench.ledger.schemas import ATTEMPTS

        self.run_id = run_id
        self.host = host
        self._redactor = redactor
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
        for name, column in self.columns.items():
            column.append(values.get(name))

    def add_unsent(self, tick: Tick, worker: int, job: LoadJob) -> None:
        """A tick (in client time) that never reached the kernel."""
        # What it would have carried matters only where it is counted.
        item = job.workload.item(tick.task) if tick.phase == Phase.MEASURE else None
        self._add(
            **{"class": item.class_name, "tenant": item.tenant, "lora": item.lora} if item is not None else {},
            **{"try": tick.tries},
            run_id=self.run_id,
            attempt_id=tick.attempt,
            request_id=request_id_of(self.run_id, tick.task, tick.tries),
            task_id=str(tick.task),
            session_id=f"user-{tick.user}" if tick.user >= 0 else None,
            phase=tick.phase,
            host=self.host,
            worker=worker,
            scheduled_ns=tick.scheduled_ns,
            outcome=Outcome.UNSENT.value,
        )

    def add_worker(self, facts: WorkerFacts, stamp_map: StampMap, base: ClockBase) -> None:
        """Everything one worker spoke of."""
        ends = facts.ends
        sizes = [len(e.decoded.kinds) for e in ends]
        user_mono = _column([e.decoded.user for e in ends], "<i8")
        kernel = _column([e.decoded.kernel for e in ends], "<i8")
        lower = _column([e.decoded.lower for e in ends], "<i8")
        exact = _column([e.decoded.exact for e in ends], "u1").astype(bool)
        t, usable = stamp_map.to_client(kernel, user_mono)
        user = user_mono + base.offset_ns
        blur = np.where(exact & usable, 0, np.maximum(t - (lower + base.offset_ns), 0))
        self.user_lags.append((user - t)[usable & exact])
        edges = np.array(
            [_edges(e) for e in ends],
            dtype=np.int64,
        ).reshape(-1, 4)
        first_t, _ = stamp_map.to_client(edges[:, 2], edges[:, 0])
        end_t, _ = stamp_map.to_client(edges[:, 3], edges[:, 1])
        at = 0
        for i, ended in enumerate(ends):
            part = usable[at : at + sizes[i]]
            self._add_end(ended, facts.worker, base, int(first_t[i]), int(end_t[i]), part)
            at += sizes[i]
        self._stream_ids.extend(e.sent.attempt for e in ends)
        self._stream_sizes.extend(sizes)
        self._t.append(t)
        self._user.append(user)
        self._kinds.extend(e.decoded.kinds for e in ends)
        self._tokens.extend(e.decoded.tokens for e in ends)
        self._blur.append(blur)

    def _sent_values(self, sent: SentRecord, worker: int, base: ClockBase) -> dict[str, Any]:
        def client(mono_ns: int) -> int | None:
            return mono_ns + base.offset_ns if mono_ns else None

        return {
            "run_id": self.run_id,
            "attempt_id": sent.attempt,
            "request_id": sent.request_id,
            "task_id": str(sent.task),
            "try": sent.tries,
            "class": sent.class_name,
            "tenant": sent.tenant,
            "lora": sent.lora,
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
        self, ended: Ended, worker: int, base: ClockBase, first_t: int, end_t: int, usable: NDArray[np.bool_]
    ) -> None:
        raw, decoded = ended.raw, ended.decoded
        first_seen = raw is not None and raw.first_ns != 0
        if not len(usable):
            source = None if raw is None or not first_seen else "kernel" if raw.first_kernel_ns else "user"
        elif usable.all():
            source = "kernel"
        else:
            source = "mixed" if usable.any() else "user"
        usage = decoded.usage
        self._add(
            **self._sent_values(ended.sent, worker, base),
            stamp_source=source,
            first_byte_ns=first_t if first_seen else None,
            end_ns=end_t if raw is not None else None,
            outcome=decoded.outcome,
            http_status=raw.status or None if raw is not None else None,
            error=self._redactor.text(decoded.error) or None,
            finish_reason=decoded.finish_reason,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            token_source="usage" if usage.output_tokens is not None else None,
            output_sha256=decoded.output_sha256,
        )
        attempt = ended.sent.attempt
        if ended.prompt is not None or ended.output is not None:
            output = None if ended.output is None else self._redactor.text(ended.output)
            self.texts.append((attempt, ended.prompt, output))
        if decoded.raw:
            self.raw.append((attempt, self._redactor.data(decoded.raw)))

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
