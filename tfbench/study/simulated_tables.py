"""The ledger's tables of a simulated run, built from columns."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from tfbench.core.jsonio import dump_text
from tfbench.core.kinds import ChunkKind, Outcome, Role
from tfbench.engine.records import stage_events
from tfbench.engine.scheduler import Sequence as EngineSequence
from tfbench.load.requests import request_id_of
from tfbench.protocol import Usage
from tfbench.study.probe import attempt_row
from tfbench.study.virtual_client import Answer
from tfbench.workload import Item

SIMULATED = "simulated"
"""The origin of a simulated run, and the source of all that a client would have had to find out."""
_ANSWERS = 20_000
_TOKENS = 5_000_000
"""At most so many answers, and about so many tokens, are in one batch of tables."""


def tables(run_id: str, host: str, answers: Iterable[Answer], *, stream: bool) -> Iterator[dict[str, Any]]:
    """Arrow tables `attempts`, `streams`, `server_events` of some answers at a time."""
    for batch in _batches(iter(answers)):
        yield {
            "attempts": _attempts(run_id, host, batch, stream),
            "streams": _streams(run_id, batch, stream),
            "server_events": _server_events(run_id, batch),
        }


def prime_table(run_id: str, host: str, primes: Iterable[tuple[Item, EngineSequence]]) -> dict[str, Any]:
    """Arrow table `attempts` of what was sent before a run to warm its cache."""
    import pyarrow as pa

    from tfbench.ledger.schemas import ATTEMPTS

    rows = []
    for number, (item, seq) in enumerate(primes, start=1):
        usage = Usage(seq.prompt_tokens, seq.cached_tokens, seq.generated)
        found = {"usage": usage, "finish_reason": "length"}
        request_id = f"00000000-0000-8000-8000-{number:012x}"
        row = attempt_row(Role.PRIME, number, request_id, seq.arrival_ns, seq.end_ns or 0, 200, found)
        own = {"run_id": run_id, "host": host, "stamp_source": SIMULATED, "token_source": SIMULATED}
        rows.append({**row, **own, "tenant": item.tenant, "lora": item.lora, "class": item.class_name})
    return {"attempts": pa.Table.from_pylist(rows, schema=ATTEMPTS)}


def _batches(answers: Iterator[Answer]) -> Iterator[list[Answer]]:
    batch: list[Answer] = []
    tokens = 0
    while part := list(islice(answers, 500)):
        batch += part
        tokens += sum(len(answer.times) for answer in part)
        if len(batch) >= _ANSWERS or tokens >= _TOKENS:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def _attempts(run_id: str, host: str, answers: Sequence[Answer], stream: bool) -> Any:
    import pyarrow as pa

    from tfbench.ledger.schemas import ATTEMPTS

    n = len(answers)
    ticks = [answer.tick for answer in answers]
    items = [answer.item for answer in answers]
    # Counts come with the end of an answer, as a server's usage does.
    usage = [answer.seq if answer.outcome is Outcome.OK else None for answer in answers]
    dispatched = [max(a.tick.scheduled_ns, a.tick.slot_ns) if a.sent else None for a in answers]
    values: dict[str, Sequence[Any]] = {
        "run_id": [run_id] * n,
        "attempt_id": [tick.attempt for tick in ticks],
        "request_id": _request_ids(run_id, answers),
        "task_id": [str(tick.task) for tick in ticks],
        "try": [tick.tries for tick in ticks],
        "role": [Role.LOAD.value] * n,
        "session_id": [f"user-{tick.user}" if tick.user >= 0 else None for tick in ticks],
        "tenant": [item.tenant for item in items],
        "lora": [item.lora for item in items],
        "class": [item.class_name for item in items],
        "phase": [tick.phase for tick in ticks],
        "host": [host] * n,
        "worker": [0] * n,
        # No connection is simulated: as if there always were one that is open.
        "new_connection": [False if answer.sent else None for answer in answers],
        "stamp_source": [SIMULATED if answer.sent else None for answer in answers],
        "scheduled_ns": [tick.scheduled_ns for tick in ticks],
        "dispatched_ns": dispatched,
        "slot_ns": [tick.slot_ns or None if a.sent else None for a, tick in zip(answers, ticks, strict=True)],
        "sent_ns": dispatched,
        "first_byte_ns": [_first_byte_ns(answer) for answer in answers],
        "end_ns": [answer.end_ns for answer in answers],
        "outcome": [answer.outcome.value for answer in answers],
        "http_status": [answer.status for answer in answers],
        "error": [answer.error for answer in answers],
        "finish_reason": [answer.finish_reason for answer in answers],
        "prompt_tokens": [None if seq is None else seq.prompt_tokens for seq in usage],
        "cached_tokens": [None if seq is None else seq.cached_tokens for seq in usage],
        "output_tokens": [None if seq is None else seq.generated for seq in usage],
        "token_source": [None if seq is None else SIMULATED for seq in usage],
    }
    nothing = [None] * n
    columns = {field.name: pa.array(values.get(field.name, nothing), field.type) for field in ATTEMPTS}
    return pa.table(columns, schema=ATTEMPTS)


def _request_ids(run_id: str, answers: Sequence[Answer]) -> list[str]:
    return [request_id_of(run_id, answer.tick.task, answer.tick.tries) for answer in answers]


def _first_byte_ns(answer: Answer) -> int | None:
    if answer.headed_ns is not None and answer.end_ns is not None and answer.headed_ns <= answer.end_ns:
        return answer.headed_ns
    # A refusal, or a whole answer, comes at once. A client that gave up has seen nothing.
    came = answer.outcome in (Outcome.OK, Outcome.REJECTED, Outcome.HTTP_ERROR)
    return answer.end_ns if came else None


def _streams(run_id: str, answers: Sequence[Answer], stream: bool) -> Any:
    """One chunk a token where the answer is streamed, else one for all of it."""
    import pyarrow as pa

    from tfbench.ledger.schemas import STREAMS

    sent = [answer for answer in answers if answer.sent]
    if stream:
        lists = [answer.times for answer in sent]
    else:
        lists = [answer.times[-1:] if answer.outcome is Outcome.OK else answer.times[:0] for answer in sent]
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    t_ns = np.concatenate(lists) if lists else np.zeros(0, np.int64)
    n = len(t_ns)
    # A chunk of a whole answer is one token only where the answer is.
    single = np.ones(n, bool) if stream else np.repeat([len(a.times) == 1 for a in sent], sizes)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    kinds = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), pa.array([ChunkKind.TEXT.value]))
    lists_of = {
        "t_ns": pa.array(t_ns),
        "user_ns": pa.array(t_ns),
        "kind": kinds.cast(pa.string()),
        "tokens": pa.array(np.ones(n, np.int32), mask=~single),
        "blur_ns": pa.array(np.zeros(n, np.int64)),
    }
    columns: dict[str, Any] = {
        "run_id": pa.array([run_id] * len(sent), pa.string()),
        "attempt_id": pa.array([answer.tick.attempt for answer in sent], pa.int64()),
    }
    columns |= {name: pa.ListArray.from_arrays(offsets, values) for name, values in lists_of.items()}
    return pa.table(columns, schema=STREAMS)


def _server_events(run_id: str, answers: Sequence[Answer]) -> Any:
    import pyarrow as pa

    from tfbench.ledger.schemas import SERVER_EVENTS

    # Only what the columns take is kept: a list of many nested lists is what garbage collection is slow with.
    rows = [
        (request_id, event["stage"], event["start_ns"], event["end_ns"], dump_text(event["attrs"]))
        for request_id, answer in zip(_request_ids(run_id, answers), answers, strict=True)
        if answer.seq is not None
        for event in stage_events(answer.seq, answer.batches, 0)
    ]
    n = len(rows)
    request_id, stage, start_ns, end_ns, attrs = zip(*rows, strict=True) if rows else ((),) * 5
    values: dict[str, Sequence[Any]] = {
        "run_id": [run_id] * n,
        "request_id": request_id,
        "stage": stage,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "clock": [SIMULATED] * n,
        "source": ["tfbench-engine"] * n,
        "attrs": attrs,
    }
    columns = {field.name: pa.array(values[field.name], field.type) for field in SERVER_EVENTS}
    return pa.table(columns, schema=SERVER_EVENTS)
