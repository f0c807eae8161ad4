"""What a server gets is what the schedule says, whatever the number of workers."""

from pathlib import Path

import numpy as np
import pytest

from tests.load.scripted import FixedSchedule, make_job, ok_script, put_through, serving
from tfbench.core.clocks import ClockBase
from tfbench.load.requests import request_id_of
from tfbench.schedule import open_schedule
from tfbench.study.fidelity import start_truth

COUNT = 120


def poisson(rate: float, seed: int) -> FixedSchedule:
    times = open_schedule("poisson", rate, None, seed, warmup_s=0.0, duration_s=None, drain_s=0.0, count=COUNT)
    return FixedSchedule(times.offsets_ns, ("measure",) * COUNT)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_union_of_the_workers_shares_is_the_schedule(workers: int, tmp_path: Path) -> None:
    plan = poisson(150.0, 5)
    with start_truth(ttft_ms=1, gap_ms=1, chunks=2) as truth:
        jobs = [
            make_job(truth.url, tmp_path, plan, worker=w, workers=workers, spool_path=str(tmp_path / f"spool-{w}"))
            for w in range(workers)
        ]
        base = ClockBase.start()
        result = put_through(*jobs)
        arrived, sent = truth.arrivals(), truth.chunks()
    rows = result.attempts
    assert result.outcomes == ["ok"] * COUNT
    # Each tick is one row at its own time, and one request at the server; none is anyone else's.
    assert np.array_equal(
        [row["scheduled_ns"] for row in rows], plan.offsets_ns + rows[0]["scheduled_ns"] - plan.offsets_ns[0]
    )
    assert [row["worker"] for row in rows] == [i % workers for i in range(COUNT)]
    names = [row["request_id"] for row in rows]
    assert names == [request_id_of("run", i) for i in range(COUNT)] and set(arrived) == set(names)
    assert all(len(sent[name]) == 2 for name in names)
    for row in rows:
        # Never before its time, and read by the server only after it was sent (the two clock bases differ by µs).
        assert row["scheduled_ns"] <= row["dispatched_ns"] <= row["sent_ns"]
        assert arrived[row["request_id"]] + base.offset_ns > row["sent_ns"] - 100_000


def test_requests_that_are_due_together_go_out_in_the_order_of_the_schedule(tmp_path: Path) -> None:
    plan = FixedSchedule(np.zeros(40, dtype=np.int64), ("measure",) * 40)
    with serving(ok_script) as server:
        result = put_through(make_job(f"http://127.0.0.1:{server.port}/v1", tmp_path, plan))
    assert result.outcomes == ["ok"] * 40
    dispatched = [row["dispatched_ns"] for row in result.attempts]
    assert dispatched == sorted(dispatched)
