"""Open, capped and closed load: who is sent when, and that every tick has one row."""

import itertools
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.load.scripted import (
    LAST,
    STREAM_HEAD,
    FixedSchedule,
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
    usage,
)
from tfbench.schedule import closed_plan

MS = 1_000_000
SECOND = 1000 * MS


def slow(index: int, request: bytes) -> Iterable[Step]:
    """An answer that takes 200 ms."""
    del index, request
    return [STREAM_HEAD, framed(delta("a")), 0.2, framed(delta(finish="stop")), LAST]


def test_a_duration_run_gives_every_tick_a_row_and_drains_under_load(tmp_path: Path) -> None:
    offsets = np.arange(0, 3000, 50) * MS
    phases = tuple("warmup" if o < 500 * MS else "measure" if o < 1000 * MS else "drain" for o in offsets)
    plan = FixedSchedule(offsets, phases)
    with serving(slow) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            plan,
            count=None,
            warmup_ns=500 * MS,
            duration_ns=500 * MS,
            drain_ns=2 * SECOND,
        )
        result = put_through(job)
    rows = result.attempts
    assert [row["attempt_id"] for row in rows] == list(range(len(offsets)))
    assert [row["phase"] for row in rows] == list(phases)
    assert [row["outcome"] for row in rows if row["phase"] != "drain"] == ["ok"] * 20
    drain = [row["outcome"] for row in rows if row["phase"] == "drain"]
    # Load went on until the last measured attempt ended, then stopped.
    assert drain[0] in ("ok", "unfinished") and drain[-1] == "unsent"
    assert set(drain) <= {"ok", "unfinished", "unsent"}
    gaps = {rows[i + 1]["scheduled_ns"] - rows[i]["scheduled_ns"] for i in range(len(rows) - 1)}
    assert gaps == {50 * MS}
    assert result.signals["sent_share"] == 1.0
    assert result.signals["scheduled_requests"] == 10


def test_connections_are_kept_alive_and_reused(tmp_path: Path) -> None:
    with serving(ok_script) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 200, 400, 600)))
    assert result.outcomes == ["ok"] * 4
    assert [row["new_connection"] for row in result.attempts] == [True, False, False, False]
    assert len({row["connection_id"] for row in result.attempts}) == 1
    assert server.connections == 1 + 1  # resolve_target looks first
    assert [row["connected_ns"] is None for row in result.attempts] == [False, True, True, True]


def test_a_connection_the_server_closed_while_idle_costs_no_request(tmp_path: Path) -> None:
    def once(index: int, request: bytes) -> Iterable[Step]:
        return [*ok_script(index, request), None]

    with serving(once) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 150, 300)))
    assert result.outcomes == ["ok"] * 3
    assert [row["new_connection"] for row in result.attempts] == [True] * 3


def test_keep_alive_promises_are_kept(tmp_path: Path) -> None:
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=1, max=100\r\n\r\n")

    def promise(index: int, request: bytes) -> Iterable[Step]:
        del index, request
        return [head, framed(delta("a") + delta(finish="stop")), LAST]

    with serving(promise) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 200, 1200)))
    assert result.outcomes == ["ok"] * 3
    assert [row["new_connection"] for row in result.attempts] == [True, False, True]


def test_capped_load_waits_in_order_and_records_the_slot(tmp_path: Path) -> None:
    with serving(slow) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 1, 2, 3), mode="open_capped", max_in_flight=1
        )
        result = put_through(job)
    assert result.outcomes == ["ok"] * 4
    rows = result.attempts
    assert rows[0]["slot_ns"] == rows[0]["scheduled_ns"]
    for before, row in itertools.pairwise(rows):
        assert row["slot_ns"] >= before["end_ns"] - 5 * MS
        assert row["dispatched_ns"] >= row["slot_ns"] > row["scheduled_ns"]
    # A wait for a slot is response latency, not the client's lag.
    assert rows[3]["slot_ns"] - rows[3]["scheduled_ns"] > 500 * MS
    lag = result.signals["client_lag_p99_ms"]
    assert lag is not None and lag < 100


def test_capped_ticks_without_a_slot_at_the_end_are_unsent(tmp_path: Path) -> None:
    def stuck(index: int, request: bytes) -> Iterable[Step]:
        del index, request
        return [STREAM_HEAD, framed(delta("a")), 5.0]

    with serving(stuck) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            schedule(0, 1, 2),
            mode="open_capped",
            max_in_flight=1,
            drain_ns=300 * MS,
        )
        result = put_through(job)
    assert result.outcomes == ["unfinished", "unsent", "unsent"]
    assert result.signals["sent_share"] == 1 / 3


def test_closed_load_keeps_each_user_busy_and_never_doubles_one(tmp_path: Path) -> None:
    plan = closed_plan(3, 7, think_s=0.02, warmup_s=0.2, duration_s=0.8, drain_s=1, count=None)
    with serving(slow) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1",
            tmp_path,
            plan,
            mode="closed",
            count=None,
            warmup_ns=200 * MS,
            duration_ns=800 * MS,
        )
        result = put_through(job)
    by_user: dict[str, list[dict[str, int]]] = {}
    for row in result.attempts:
        by_user.setdefault(row["session_id"], []).append(row)
    assert set(by_user) == {"user-0", "user-1", "user-2"}
    for user, rows in by_user.items():
        assert len(rows) >= 4
        assert [row["attempt_id"] for row in rows] == [3 * turn + int(user[5:]) for turn in range(len(rows))]
        for before, row in itertools.pairwise(rows):
            think = row["scheduled_ns"] - before["end_ns"]
            assert 15 * MS < think < 60 * MS
    assert {row["outcome"] for row in result.attempts if row["phase"] == "measure"} == {"ok"}


def test_a_closed_loop_does_not_flood_a_server_that_refuses_at_once(tmp_path: Path) -> None:
    plan = closed_plan(2, 7, think_s=0.0, warmup_s=0.0, duration_s=0.7, drain_s=1, count=None)
    with serving(lambda index, request: reply("429 Too Many Requests", b"{}")) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1", tmp_path, plan, mode="closed", count=None, duration_ns=700 * MS
        )
        result = put_through(job)
    assert 4 <= len(result.attempts) <= 2 * 9


def test_closed_load_with_a_count_measures_exactly_that_many(tmp_path: Path) -> None:
    plan = closed_plan(2, 7, think_s=0.0, warmup_s=0, duration_s=None, drain_s=1, count=7)
    with serving(ok_script) as server:
        job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, plan, mode="closed", count=7)
        result = put_through(job)
    assert result.outcomes == ["ok"] * 7


def test_workers_share_a_schedule_by_stride(tmp_path: Path) -> None:
    plan = schedule(*range(0, 400, 10))
    with serving(ok_script) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        jobs = [
            make_job(url, tmp_path, plan, worker=w, workers=4, spool_path=str(tmp_path / f"spool-{w}"))
            for w in range(4)
        ]
        result = put_through(*jobs)
    assert result.outcomes == ["ok"] * 40
    assert [row["worker"] for row in result.attempts] == [i % 4 for i in range(40)]
    assert [row["attempt_id"] for row in result.attempts] == list(range(40))
    sent = [request.partition(b'"content":"')[2].partition(b'"')[0] for request in server.requests]
    assert len(set(sent)) == 40


def test_a_killed_worker_leaves_unfinished_and_unsent(tmp_path: Path) -> None:
    import os
    import signal

    def stuck(index: int, request: bytes) -> Iterable[Step]:
        return [STREAM_HEAD, framed(delta("a")), 10.0] if index == 1 else ok_script(index, request)

    def kill_later(pids: list[int]) -> None:
        threading.Timer(0.6, lambda: os.kill(pids[0], signal.SIGKILL)).start()

    with serving(stuck) as server:
        job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 50, 100, 5000))
        result = put_through(job, on_start=kill_later)
    assert result.outcomes == ["ok", "unfinished", "ok", "unsent"]
    assert "worker died" in result.attempts[1]["error"]
    assert "signal 9" in result.end.workers[0].dead
    assert result.signals["dead_workers"] == 1


def test_a_slow_reader_of_one_stream_never_holds_up_another(tmp_path: Path) -> None:
    """One server stalls inside a stream; the others' times don't move."""

    def mixed(index: int, request: bytes) -> Iterable[Step]:
        if index == 0:
            return [STREAM_HEAD, framed(delta("a")), 1.0, framed(delta(finish="stop")), LAST]
        return ok_script(index, request)

    with serving(mixed) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 100, 200, 300)))
    assert result.outcomes == ["ok"] * 4
    for row in result.attempts[1:]:
        assert row["end_ns"] - row["sent_ns"] < 500 * MS


def test_large_bodies_and_responses_pass_whole(tmp_path: Path) -> None:
    from tests.load.scripted import FixedWorkload

    text = "x" * 400_000

    def big(index: int, request: bytes) -> Iterable[Step]:
        del index, request
        return stream(delta(text), delta(finish="stop"), usage(1))

    with serving(big) as server:
        job = make_job(
            f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 1), workload=FixedWorkload(size=3_000_000)
        )
        result = put_through(job)
    assert result.outcomes == ["ok", "ok"]
    assert all(len(request) > 3_000_000 for request in server.requests)
    assert result.texts[0]["output"] == text
    assert result.kinds() == ["text", "finish", "usage"]


def test_ipv6(tmp_path: Path) -> None:
    import socket

    with serving(ok_script, socket.AF_INET6) as server:
        result = put_through(make_job(f"http://[::1]:{server.port}/v1", tmp_path, schedule(0)))
    assert result.outcomes == ["ok"]
    assert b"host: [::1]:%d\r\n" % server.port in server.requests[0].lower()


def test_stop_marks_in_flight_unfinished_and_the_rest_unsent(tmp_path: Path) -> None:
    """What Ctrl-C does: the parent's stop, seen through its process."""
    import json
    import pickle
    import subprocess
    import sys

    from tfbench.core.clocks import ClockBase
    from tfbench.load.assemble import assemble
    from tfbench.load.supervise import LoadEnd, WorkerEnd

    def stuck(index: int, request: bytes) -> Iterable[Step]:
        del index, request
        return [STREAM_HEAD, framed(delta("a")), 10.0]

    with serving(stuck) as server:
        job = make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, schedule(0, 60_000), drain_ns=60 * SECOND)
        process = subprocess.Popen(
            [sys.executable, "-m", "tfbench.load.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None and process.stdout is not None
        data = pickle.dumps(job)
        process.stdin.write(len(data).to_bytes(8, "little") + data)
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"ready": True}
        start = time.monotonic_ns()
        process.stdin.write(b"go %d\n" % start)
        process.stdin.flush()
        time.sleep(0.5)
        process.stdin.write(b"stop\n")
        process.stdin.flush()
        assert process.wait(timeout=20) == 0
        process.stdout.close()
        process.stdin.close()
    spool = Path(job.spool_path)
    end = LoadEnd(start, (WorkerEnd(0, spool, ""),), True)
    rows = assemble("run", [job], end, ClockBase.start(), "host").tables["attempts"].to_pylist()
    assert [row["outcome"] for row in rows] == ["unfinished", "unsent"]
    assert rows[0]["error"] == "interrupted"


def test_a_connection_per_request(tmp_path: Path) -> None:
    with serving(ok_script) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        result = put_through(make_job(url, tmp_path, schedule(0, 100, 200), connections="per_request"))
    assert [row["new_connection"] for row in result.attempts] == [True] * 3
    assert all(b"\r\nconnection: close\r\n" in request.lower() for request in server.requests)


def test_connections_opened_before_the_run_spare_the_first_requests_theirs(tmp_path: Path) -> None:
    with serving(ok_script) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        result = put_through(make_job(url, tmp_path, schedule(50, 50, 50), preconnect=3))
    assert result.outcomes == ["ok"] * 3
    assert [row["new_connection"] for row in result.attempts] == [False] * 3


def test_a_connection_per_user(tmp_path: Path) -> None:
    plan = closed_plan(2, 7, think_s=0.0, warmup_s=0, duration_s=None, drain_s=1, count=8)
    with serving(slow) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        result = put_through(make_job(url, tmp_path, plan, mode="closed", count=8, connections="per_session"))
    by_user: dict[str, set[int]] = {}
    for row in result.attempts:
        by_user.setdefault(row["session_id"], set()).add(row["connection_id"])
    assert {len(ids) for ids in by_user.values()} == {1} and len(by_user) == 2
