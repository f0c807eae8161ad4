"""Retries, planned cancellation, traffic classes: what happens to a task beyond its first try."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.load.scripted import (
    STREAM_HEAD,
    FixedItem,
    Step,
    delta,
    framed,
    make_job,
    ok_script,
    put_through,
    reply,
    schedule,
    serving,
    stream,
)
from tfbench.load.retry_after import retry_after_s
from tfbench.manifest import Retry
from tfbench.schedule import closed_plan

MS = 1_000_000
BUSY = reply("429 Too Many Requests", b"{}")


def first_busy(index: int, request: bytes) -> Iterable[Step]:
    """Every prompt's first try is refused."""
    del index
    prompt = json.loads(request.partition(b"\r\n\r\n")[2])["messages"][0]["content"]
    if prompt in first_busy.seen:  # type: ignore[attr-defined]
        return ok_script(0, b"")
    first_busy.seen.add(prompt)  # type: ignore[attr-defined]
    return BUSY


@pytest.fixture(autouse=True)
def _fresh() -> None:
    first_busy.seen = set()  # type: ignore[attr-defined]


def test_a_retry_is_a_new_attempt_of_the_same_task(tmp_path: Path) -> None:
    policy = Retry(outcomes=("rejected",), max=2, backoff_s=0.1, cap_s=1.0)
    with serving(first_busy) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 50), retry=policy))
    rows = {(row["task_id"], row["try"]): row for row in result.attempts}
    assert set(rows) == {("0", 0), ("0", 1), ("1", 0), ("1", 1)}
    assert [rows["0", 0]["outcome"], rows["0", 1]["outcome"]] == ["rejected", "ok"]
    waited = rows["0", 1]["scheduled_ns"] - rows["0", 0]["end_ns"]
    assert abs(waited - 100 * MS) < 20 * MS
    assert len({row["attempt_id"] for row in result.attempts}) == 4
    assert len({row["request_id"] for row in result.attempts}) == 4
    assert rows["0", 0]["prompt_sha256"] == rows["0", 1]["prompt_sha256"]
    assert all(row["phase"] == "measure" for row in result.attempts)


def test_retries_end_at_the_policys_maximum(tmp_path: Path) -> None:
    policy = Retry(outcomes=("rejected",), max=2, backoff_s=0.02, factor=2.0, cap_s=1.0)
    with serving(lambda index, request: BUSY) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0), retry=policy))
    assert [(row["try"], row["outcome"]) for row in result.attempts] == [(n, "rejected") for n in range(3)]


def test_only_named_outcomes_are_retried(tmp_path: Path) -> None:
    policy = Retry(outcomes=("connect_error",), max=2, backoff_s=0.02, cap_s=1.0)
    with serving(first_busy) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0), retry=policy))
    assert result.outcomes == ["rejected"]


def test_a_broken_stream_is_retried_when_named(tmp_path: Path) -> None:
    def flaky(index: int, request: bytes) -> Iterable[Step]:
        return stream(delta("a")) if index == 0 else ok_script(index, request)

    policy = Retry(outcomes=("stream_error",), max=1, backoff_s=0.02, cap_s=1.0)
    with serving(flaky) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0), retry=policy))
    assert [(row["try"], row["outcome"]) for row in result.attempts] == [(0, "stream_error"), (1, "ok")]
    assert result.kinds(0) == ["text"]


def test_retry_after_is_honoured_up_to_the_cap(tmp_path: Path) -> None:
    busy = reply("503 Busy", b"{}", "application/json", "Retry-After: 1")

    def script(index: int, request: bytes) -> Iterable[Step]:
        return busy if index == 0 else ok_script(index, request)

    for cap_s, expected in ((5.0, ["rejected", "ok"]), (0.5, ["rejected"])):
        policy = Retry(outcomes=("rejected",), max=1, backoff_s=0.02, cap_s=cap_s)
        with serving(script) as server:
            job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path / str(cap_s), schedule(0), retry=policy)
            (tmp_path / str(cap_s)).mkdir()
            result = put_through(job)
        assert result.outcomes == expected
        if len(expected) == 2:
            assert result.attempts[1]["scheduled_ns"] - result.attempts[0]["end_ns"] >= 1000 * MS


def test_a_retry_planned_but_never_sent_is_unsent(tmp_path: Path) -> None:
    policy = Retry(outcomes=("rejected",), max=1, backoff_s=5.0, cap_s=10.0)
    with serving(lambda index, request: BUSY) as server:
        job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0), retry=policy, drain_ns=300 * MS)
        result = put_through(job)
    assert [(row["try"], row["outcome"]) for row in result.attempts] == [(0, "rejected"), (1, "unsent")]


def test_a_closed_loops_user_waits_for_its_retry(tmp_path: Path) -> None:
    policy = Retry(outcomes=("rejected",), max=1, backoff_s=0.05, cap_s=1.0)
    plan = closed_plan(1, 7, think_s=0.0, warmup_s=0, duration_s=None, drain_s=1, count=3)
    with serving(first_busy) as server:
        job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, plan, mode="closed", count=3, retry=policy)
        result = put_through(job)
    rows = sorted(result.attempts, key=lambda row: row["scheduled_ns"])
    assert [(row["task_id"], row["try"]) for row in rows] == [(str(n // 2), n % 2) for n in range(6)]


def test_capped_load_gives_a_retry_a_slot_of_its_own(tmp_path: Path) -> None:
    policy = Retry(outcomes=("rejected",), max=1, backoff_s=0.02, cap_s=1.0)
    with serving(first_busy) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            schedule(0, 1, 2),
            mode="open_capped",
            max_in_flight=1,
            retry=policy,
        )
        result = put_through(job)
    assert sorted(result.outcomes) == ["ok"] * 3 + ["rejected"] * 3
    spans = sorted((row["dispatched_ns"], row["end_ns"]) for row in result.attempts)
    assert all(first[1] <= second[0] + MS for first, second in itertools.pairwise(spans))


@dataclass(frozen=True)
class Cancelled:
    """Every second request is planned to be cancelled."""

    def item(self, i: int) -> FixedItem:
        return FixedItem(f"prompt {i}", 2, 8, cancel=i % 2 == 1)


def dribble(index: int, request: bytes) -> Iterable[Step]:
    """Eight tokens, 100 ms apart."""
    del index, request
    return [STREAM_HEAD, *(step for n in range(8) for step in (framed(delta(f"t{n}")), 0.1)), *stream()[1:]]


def test_planned_cancellation_after_a_delay(tmp_path: Path) -> None:
    with serving(dribble) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            schedule(0, 10),
            workload=Cancelled(),
            cancel_after_ns=250 * MS,
        )
        result = put_through(job)
    cancelled = result.attempts[1]
    assert [row["outcome"] for row in result.attempts] == ["stream_error", "cancelled"]
    assert 200 * MS < cancelled["end_ns"] - cancelled["sent_ns"] < 600 * MS
    assert 1 <= len(result.kinds(1)) < 8


def test_planned_cancellation_after_chunks(tmp_path: Path) -> None:
    with serving(dribble) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            schedule(0, 10),
            workload=Cancelled(),
            cancel_after_chunks=3,
        )
        result = put_through(job)
    assert result.outcomes == ["stream_error", "cancelled"]
    assert result.kinds(1) == ["text"] * 3
    assert result.texts[1]["output"] == "t0t1t2"


def silent(index: int, request: bytes) -> Iterable[Step]:
    """Something that shows nothing, then eight tokens 100 ms apart, of which the even ones show nothing either."""
    bare = delta("")
    shown = [framed(delta(f"t{n}") if n % 2 else bare) for n in range(8)]
    del index, request
    return [STREAM_HEAD, framed(bare), *(step for one in shown for step in (one, 0.1)), *stream()[1:]]


def test_chunks_that_show_nothing_bring_no_cancellation_nearer(tmp_path: Path) -> None:
    with serving(silent) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        result = put_through(make_job(url, tmp_path, schedule(0, 10), workload=Cancelled(), cancel_after_chunks=3))
    assert result.outcomes == ["stream_error", "cancelled"]
    assert result.texts[1]["output"] == "t1t3t5"


def test_one_that_ends_before_its_cancellation_keeps_its_outcome(tmp_path: Path) -> None:
    with serving(ok_script) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            schedule(0, 10),
            workload=Cancelled(),
            cancel_after_ns=1000 * MS,
        )
        result = put_through(job)
    assert result.outcomes == ["ok", "ok"]


@dataclass(frozen=True)
class Classes:
    """Tenants and adapters by index."""

    def item(self, i: int) -> FixedItem:
        return FixedItem(f"prompt {i}", 2, 8, f"class-{i}", f"tenant-{i}", "lora-a" if i else None)


def test_class_tenant_and_lora_are_sent_and_recorded(tmp_path: Path) -> None:
    with serving(ok_script) as server:
        job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 20), workload=Classes())
        result = put_through(job)
    assert [(row["class"], row["tenant"], row["lora"]) for row in result.attempts] == [
        ("class-0", "tenant-0", None),
        ("class-1", "tenant-1", "lora-a"),
    ]
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests]
    assert [(body["model"], body["user"]) for body in bodies] == [("m", "tenant-0"), ("lora-a", "tenant-1")]


def test_load_goes_on_until_every_workers_measured_tasks_have_ended(tmp_path: Path) -> None:
    """Worker 1's only measured request is slow; worker 0's drain load must not stop before it."""

    def slow_one(index: int, request: bytes) -> Iterable[Step]:
        if b"prompt 1 " in request:
            return [STREAM_HEAD, framed(delta("a")), 1.0, *stream(delta(finish="stop"))[1:]]
        return ok_script(index, request)

    offsets = [0.0, 5.0, *(100.0 + 100 * n for n in range(30))]
    phases = ("measure", "measure", *("drain",) * 30)
    plan = schedule(*offsets, phases=phases)
    with serving(slow_one) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        jobs = [
            make_job(
                url,
                tmp_path,
                plan,
                worker=w,
                workers=2,
                count=None,
                duration_ns=50 * MS,
                spool_path=str(tmp_path / f"spool-{w}"),
            )
            for w in range(2)
        ]
        result = put_through(*jobs)
    measured, drain = result.attempts[:2], result.attempts[2:]
    assert [row["outcome"] for row in measured] == ["ok", "ok"]
    by_worker = {w: [row["outcome"] for row in drain if row["worker"] == w] for w in (0, 1)}
    assert by_worker[0].count("ok") >= 3, "worker 0 kept up the load"
    assert by_worker[0][-1] == by_worker[1][-1] == "unsent"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"", None),
        (b"3", 3.0),
        (b" 120 ", 120.0),
        (b"-1", None),
        (b"soon", None),
        (b"Thu, 01 Jan 1970 00:01:40 GMT", 50.0),
        (b"Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        (b"\xff\xfe", None),
        (b"\xb2", None),
        (b"Mon, 99999999999999999999 Jan 2020 00:00:00 GMT", None),
        (b"1 Jan 2020 00:00:00 +99999999999999999999", None),
        (b"9999999999999999999999", 999999999.0),
    ],
)
def test_retry_after_values(value: bytes, seconds: float | None) -> None:
    assert retry_after_s(value, 50.0) == seconds
