from itertools import pairwise
from typing import Any

import orjson
import pytest

from tfbench.core.clocks import ClockBase
from tfbench.engine import EngineConfig
from tfbench.engine.api import parse_submission
from tfbench.engine.kv import KvCache
from tfbench.engine.misbehave import parse_act
from tfbench.engine.records import Record, RecordStore, stage_events
from tfbench.engine.scheduler import Scheduler, Sequence

OFFSET = 1_000_000
CONFIG = EngineConfig()


def store(keep_requests: int = 10, keep_chunks: int = 1000) -> RecordStore:
    return RecordStore(ClockBase(OFFSET), keep_requests=keep_requests, keep_chunks=keep_chunks)


def served(arrival: int, cut_ns: int | None = None) -> Sequence:
    """Two prompt tokens and three generated ones, in steps that end 20, 30 and 40 ns after the arrival, if not cut."""
    scheduler = Scheduler(max_num_seqs=1, max_num_batched_tokens=2, max_waiting=0)
    seq = scheduler.admit(0, 2, 3, arrival)
    assert seq is not None
    for start in (arrival + 10, arrival + 20, arrival + 30):
        step = scheduler.plan_step(start)
        assert step is not None
        if cut_ns is not None:
            scheduler.cancel(seq, cut_ns)
            break
        scheduler.finish_step(step, start + 10)
    return seq


def record(request_id: str = "r", chunks: int = 3, arrival: int = 100, **facts: Any) -> Record:
    body = {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 3, "stream": True}
    body["stream_options"] = {"include_usage": True}
    submission = parse_submission(orjson.dumps(body), CONFIG, chat=True)
    seq = served(arrival)
    made = Record(request_id, "chatcmpl-" + request_id, submission, 200, arrival, seq, finish_reason="length", **facts)
    for i in range(chunks):
        made.add_chunk(arrival + 21 + 10 * i, arrival + 20 + 10 * i, 1)
    made.batch.extend([3, 3])
    return made


def found(kept: RecordStore, request_id: str) -> list[dict[str, Any]]:
    return [orjson.loads(text) for text in kept.find(request_id)]


def test_a_record_says_what_happened_on_the_engines_clock() -> None:
    kept = store()
    kept.close(record(headers_sent_ns=105, end_ns=142))
    (facts,) = found(kept, "r")
    assert facts["chunks"] == {
        "kind": ["role", "text", "text", "text", "usage"],
        "tokens": [0, 1, 1, 1, 0],
        "sent_ns": [OFFSET + t for t in (121, 121, 131, 141, 141)],
        "due_ns": [OFFSET + t for t in (120, 120, 130, 140, 140)],
    }
    assert facts["events"] == [
        {"stage": "queue", "start_ns": OFFSET + 100, "end_ns": OFFSET + 110, "attrs": {}},
        {
            "stage": "prefill",
            "start_ns": OFFSET + 110,
            "end_ns": OFFSET + 120,
            "attrs": {"tokens": 2, "steps": 1, "chunks": [[OFFSET + 110, OFFSET + 120, 2]], "cached_tokens": 0},
        },
        {
            "stage": "decode",
            "start_ns": OFFSET + 120,
            "end_ns": OFFSET + 140,
            "attrs": {"tokens": 2, "steps": 2, "batch": [[3, 2]]},
        },
    ]
    assert (facts["arrival_ns"], facts["headers_sent_ns"], facts["end_ns"]) == (
        OFFSET + 100,
        OFFSET + 105,
        OFFSET + 142,
    )


def test_preemption_splits_prefill_and_decode() -> None:
    """Two sequences of 2 + 4 tokens in 4 blocks of 2: the second loses its blocks once each needs a third."""
    scheduler = Scheduler(
        max_num_seqs=2, max_num_batched_tokens=4, max_waiting=0, kv=KvCache(4, block_tokens=2, reuse=False)
    )
    first, second = (scheduler.admit(i, 2, 4, 0) for i in range(2))
    assert first is not None and second is not None
    batches: list[int] = []
    now = 0
    while (step := scheduler.plan_step(now)) is not None:
        now += 10
        emitted = scheduler.finish_step(step, now).emitted
        if second in emitted[: step.work.decode_seqs]:
            batches.append(step.work.decode_seqs)
    events = stage_events(second, batches, 0)
    assert second.preemptions == 1
    stages = ["queue", "prefill", "decode", "preempted", "prefill", "decode"]
    assert [event["stage"] for event in events] == stages
    assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(events))
    assert events[-1]["end_ns"] == second.end_ns == now
    _, prefill, decode, _, again, rest = events
    # It is computed anew with the tokens it had, the prefill giving the next one.
    assert (prefill["attrs"]["tokens"], again["attrs"]["tokens"]) == (2, 2 + 1 + decode["attrs"]["tokens"])
    assert decode["attrs"]["tokens"] + rest["attrs"]["tokens"] == second.output_tokens - 2 == len(batches)
    assert decode["attrs"]["batch"] == [[2, decode["attrs"]["tokens"]]]
    assert "cached_tokens" in prefill["attrs"] and "cached_tokens" not in again["attrs"]


def test_one_in_flight_and_one_cut_in_its_prompt() -> None:
    kept = store()
    live = record(chunks=1)
    assert live.seq is not None
    live.finish_reason, live.seq.end_ns = None, None
    kept.open(live)
    (facts,) = found(kept, "r")
    assert facts["events"][-1]["end_ns"] is None and facts["end_ns"] is None
    assert facts["chunks"]["kind"] == ["role", "text"]
    live.seq = served(100, cut_ns=115)
    kept.close(live)
    (facts,) = found(kept, "r")
    assert [event["stage"] for event in facts["events"]] == ["queue", "prefill"]
    assert facts["events"][-1]["end_ns"] == OFFSET + 115
    assert facts["events"][-1]["attrs"]["cancelled"] is True


def test_what_was_sent_apart_from_tokens_is_named() -> None:
    kept = store()
    live = record("x", chunks=0, act=parse_act("stream_error; after=1"))
    for sent_ns, tokens in ((105, Record.ROLE), (121, 1), (122, Record.ERROR)):
        live.add_chunk(sent_ns, sent_ns, tokens)
    live.finish_reason = "error"
    kept.close(live)
    (facts,) = found(kept, "x")
    assert facts["misbehaviour"] == "stream_error; after=1"
    assert facts["chunks"]["kind"] == ["role", "text", "error"]
    assert facts["chunks"]["tokens"] == [0, 1, 0]


def test_a_reused_id_gives_a_list_oldest_first() -> None:
    kept = store()
    kept.close(record("x", arrival=1))
    kept.close(record("x-1", arrival=2))
    kept.close(record("x", arrival=3))
    kept.open(record("x", arrival=4))
    assert [facts["arrival_ns"] - OFFSET for facts in found(kept, "x")] == [1, 3, 4]
    assert found(kept, "nobody") == []


@pytest.mark.parametrize(("keep_requests", "keep_chunks", "left"), [(4, 1000, 4), (10, 7, 2), (0, 1000, 0), (9, 2, 0)])
def test_the_oldest_are_forgotten(keep_requests: int, keep_chunks: int, left: int) -> None:
    kept = store(keep_requests, keep_chunks)
    for i in range(20):
        kept.close(record(f"r{i}", arrival=i))
    assert len(kept) == left
    names = [orjson.loads(text)["request_id"] for text in kept.since(0)]
    assert names == [f"r{i}" for i in range(20 - left, 20)]


def test_since_counts_by_arrival_and_bears_changes_while_it_is_read() -> None:
    kept = store(keep_requests=3)
    for i in range(3):
        kept.close(record(f"r{i}", arrival=i))
    assert [orjson.loads(text)["request_id"] for text in kept.since(OFFSET + 2)] == ["r2"]
    live = record("r3", arrival=3)
    kept.open(live)
    reading = kept.since(0)
    names = [orjson.loads(next(reading))["request_id"]]
    kept.close(live)
    kept.close(record("r4", arrival=4))
    names += [orjson.loads(text)["request_id"] for text in reading]
    assert names == ["r0", "r2", "r3", "r4"]


def test_the_clock_maps_to_monotonic_and_real_time() -> None:
    clock = ClockBase.start()
    facts = RecordStore(clock, keep_requests=1, keep_chunks=1).clock_facts()
    assert facts["source"] == "CLOCK_MONOTONIC"
    assert facts["offset_ns"] == clock.offset_ns
    anchor = facts["anchor"]
    assert anchor["mono_ns"] + facts["offset_ns"] - facts["realtime_offset_ns"] == anchor["real_ns"]
