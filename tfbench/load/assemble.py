"""From the workers' facts to the ledger's tables: one clock, one row per scheduled request."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfbench.core.clocks import Anchor, ClockBase
from tfbench.core.kinds import Mode, Outcome, Phase, Role
from tfbench.core.redact import Redactor
from tfbench.load.decode import KIND_NAMES
from tfbench.load.feeders import Tick, phase_of
from tfbench.load.job import LoadJob
from tfbench.load.readback import Ended, WorkerReader
from tfbench.load.requests import request_id_of
from tfbench.load.spool import SentRecord
from tfbench.load.stampmap import I64, StampMap
from tfbench.load.supervise import LoadEnd
from tfbench.load.tally import Tally


def _column(parts: list[bytes], dtype: str) -> NDArray[Any]:
    return np.frombuffer(b"".join(parts), dtype=dtype)


@dataclass
class Assembler:
    """Turns a load's spools into the ledger's tables, batch by batch, and keeps the tally that signals need.

    Every tick of a frozen schedule gets a row: ticks no worker spoke of are `unsent`; sent ones
    without an end (their worker died) are `unfinished`.
    """

    run_id: str
    jobs: Sequence[LoadJob]
    end: LoadEnd
    base: ClockBase
    host: str
    readers: list[WorkerReader] = field(init=False)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.readers = [WorkerReader(worker.spool_path, worker.worker) for worker in self.end.workers]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """What the workers said at their end, once the batches are read."""
        return [one.summary for one in self.readers if one.summary is not None]

    def batches(self) -> Iterator[dict[str, Any]]:
        """Arrow tables `attempts`, `streams`, `texts`, `raw` of some attempts at a time; last, `clock_anchors`."""
        job = self.jobs[0]
        redactor = Redactor(job.secrets)
        seen = _Seen(job)
        steps = 0
        anchors: list[Anchor] = []
        for reader in self.readers:
            for batch in reader.batches():
                rows = _Rows(self.run_id, self.host, redactor)
                rows.add_calls(batch, reader.worker, StampMap(self.base, reader.anchors), self.base)
                seen.add(one.sent.attempt for one in batch)
                yield self._tables(rows)
            rows = _Rows(self.run_id, self.host, redactor)
            for tick in reader.planned.values():
                at = tick._replace(scheduled_ns=tick.scheduled_ns + self.base.offset_ns)
                rows.add_unsent(at, reader.worker, job)
            yield self._tables(rows)
            steps += StampMap(self.base, reader.anchors).steps
            anchors += reader.anchors
        self.tally.clock_steps = steps
        for ticks in seen.unsent(self.end.start_ns + self.base.offset_ns):
            rows = _Rows(self.run_id, self.host, redactor)
            for tick in ticks:
                rows.add_unsent(tick, tick.attempt % job.workers, job)
            yield self._tables(rows)
        yield {"clock_anchors": _anchors_table(self.run_id, self.host, anchors)}

    def _tables(self, rows: "_Rows") -> dict[str, Any]:
        tables = rows.tables()
        self.tally.add(tables["attempts"], tables["streams"], rows.user_lag_ns)
        return tables


@dataclass(frozen=True)
class Assembled:
    """A whole load's tables in memory, for loads that are small enough."""

    tables: dict[str, Any]
    tally: Tally
    summaries: list[dict[str, Any]]


def assemble(run_id: str, jobs: Sequence[LoadJob], end: LoadEnd, base: ClockBase, host: str) -> Assembled:
    """All of an `Assembler`'s batches at once, in order of attempts."""
    import pyarrow as pa

    assembler = Assembler(run_id, jobs, end, base, host)
    parts: dict[str, list[Any]] = {}
    for batch in assembler.batches():
        for name, table in batch.items():
            parts.setdefault(name, []).append(table)
    tables = {name: pa.concat_tables(found) for name, found in parts.items()}
    for name in ("attempts", "streams"):
        tables[name] = tables[name].sort_by("attempt_id")
    return Assembled(tables, assembler.tally, assembler.summaries)


class _Seen:
    """Which ticks of a frozen schedule were spoken of."""

    def __init__(self, job: LoadJob) -> None:
        self._job = job
        closed = job.mode == Mode.CLOSED
        self._offsets: I64 = np.zeros(0, dtype=np.int64) if closed else job.plan.offsets_ns
        self._seen = np.zeros(len(self._offsets), dtype=bool)

    def add(self, attempts: Iterable[int]) -> None:
        """These were; retries, whose ids lie beyond the schedule, are passed over."""
        ids = np.fromiter(attempts, dtype=np.int64)
        self._seen[ids[ids < len(self._seen)]] = True

    def unsent(self, start_ns: int, ticks: int = 50_000) -> Iterator[list[Tick]]:
        """The others, in client time, some at a time."""
        job = self._job
        left = np.flatnonzero(~self._seen)
        for at in range(0, len(left), ticks):
            yield [
                Tick(i, start_ns + offset, 0, phase_of(offset, job.warmup_ns, job.duration_ns), -1, i)
                for i, offset in ((int(i), int(self._offsets[i])) for i in left[at : at + ticks])
            ]


def _anchors_table(run_id: str, host: str, anchors: Sequence[Anchor]) -> Any:
    import pyarrow as pa

    from tfbench.ledger.schemas import CLOCK_ANCHORS

    return pa.table(
        {
            "run_id": pa.array([run_id] * len(anchors), pa.string()),
            "host": pa.array([host] * len(anchors), pa.string()),
            "mono_ns": pa.array([a.mono_ns for a in anchors], pa.int64()),
            "real_ns": pa.array([a.real_ns for a in anchors], pa.int64()),
            "width_ns": pa.array([a.width_ns for a in anchors], pa.int64()),
        },
        schema=CLOCK_ANCHORS,
    )


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
        self._columns: dict[str, list[Any]] = {name: [] for name in ATTEMPTS.names}
        self._texts: list[tuple[int, str | None, str | None]] = []
        self._raw: list[tuple[int, bytes]] = []
        self.user_lag_ns: I64 = np.zeros(0, dtype=np.int64)
        self._streams: Any = None

    def _add(self, **values: Any) -> None:
        values.setdefault("role", Role.LOAD.value)
        for name, column in self._columns.items():
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

    def add_calls(self, ends: list[Ended], worker: int, stamp_map: StampMap, base: ClockBase) -> None:
        """A batch of calls; one batch a `_Rows`."""
        sizes = [len(e.decoded.kinds) for e in ends]
        user_mono = _column([e.decoded.user for e in ends], "<i8")
        seconds, nanoseconds = _column([e.decoded.stamps for e in ends], "i8").reshape(-1, 2).T
        kernel = seconds * 1_000_000_000 + nanoseconds
        lower = _column([e.decoded.lower for e in ends], "<i8")
        exact = _column([e.decoded.exact for e in ends], "u1").astype(bool)
        t, usable = stamp_map.to_client(kernel, user_mono)
        user = user_mono + base.offset_ns
        blur = np.where(exact & usable, 0, np.maximum(t - (lower + base.offset_ns), 0))
        self.user_lag_ns = (user - t)[usable & exact]
        edges = np.array([_edges(e) for e in ends], dtype=np.int64).reshape(-1, 4)
        first_t, _ = stamp_map.to_client(edges[:, 2], edges[:, 0])
        end_t, _ = stamp_map.to_client(edges[:, 3], edges[:, 1])
        at = 0
        for i, ended in enumerate(ends):
            part = usable[at : at + sizes[i]]
            self._add_end(ended, worker, base, int(first_t[i]), int(end_t[i]), part)
            at += sizes[i]
        self._streams = self._streams_table(ends, sizes, t, user, blur)

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
            self._texts.append((attempt, ended.prompt, output))
        if decoded.raw:
            self._raw.append((attempt, self._redactor.data(decoded.raw)))

    def tables(self) -> dict[str, Any]:
        """The tables of these rows, by name."""
        import pyarrow as pa

        from tfbench.ledger.schemas import ATTEMPTS, RAW, STREAMS, TEXTS

        columns = {name: pa.array(self._columns[name], ATTEMPTS.field(name).type) for name in ATTEMPTS.names}
        texts = [{"run_id": self.run_id, "attempt_id": a, "prompt": p, "output": o} for a, p, o in self._texts]
        raw = [{"run_id": self.run_id, "attempt_id": a, "bytes": data} for a, data in self._raw]
        return {
            "attempts": pa.table(columns, schema=ATTEMPTS),
            "streams": STREAMS.empty_table() if self._streams is None else self._streams,
            "texts": pa.Table.from_pylist(texts, schema=TEXTS),
            "raw": pa.Table.from_pylist(raw, schema=RAW),
        }

    def _streams_table(self, ends: list[Ended], sizes: list[int], t: I64, user: I64, blur: I64) -> Any:
        """The `streams` table, its lists cut from whole columns."""
        import pyarrow as pa

        from tfbench.ledger.schemas import STREAMS

        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        codes = _column([e.decoded.kinds for e in ends], "u1")
        tokens = _column([e.decoded.tokens for e in ends], "<i4")
        lists = {
            "t_ns": pa.array(t),
            "user_ns": pa.array(user),
            "kind": pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(KIND_NAMES)).cast(
                pa.string()
            ),
            "tokens": pa.array(tokens, pa.int32(), mask=tokens < 0),
            "blur_ns": pa.array(blur),
        }
        columns: dict[str, Any] = {
            "run_id": pa.array([self.run_id] * len(sizes), pa.string()),
            "attempt_id": pa.array([e.sent.attempt for e in ends], pa.int64()),
        }
        columns |= {name: pa.ListArray.from_arrays(offsets, values) for name, values in lists.items()}
        return pa.table(columns, schema=STREAMS)
