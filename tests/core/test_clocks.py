"""Client time is monotonic time at a fixed offset."""

import time

from tfbench.core.clocks import Anchor, ClockBase, read_anchor


def test_anchor_brackets_realtime() -> None:
    before = time.time_ns()
    anchor = read_anchor()
    assert before <= anchor.real_ns <= time.time_ns()
    assert 0 <= anchor.width_ns < 10_000_000


def test_client_time_is_epoch_time_and_never_runs_back() -> None:
    base = ClockBase.start()
    stamps = [base.now_ns() for _ in range(1000)]
    assert stamps == sorted(stamps)
    assert abs(stamps[0] - time.time_ns()) < 100_000_000
    assert Anchor(10, 110, 0).offset_ns == 100
