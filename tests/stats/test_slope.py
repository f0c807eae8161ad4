"""Backlog slope: the arithmetic, then how often growth is found where it is and where it isn't."""

import numpy as np
import pytest

from benchmarks.queues import queue
from tfbench.stats.slope import backlog_slope

SECOND = 1_000_000_000


def spans(start: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (start * SECOND).astype(np.int64), ((start + length) * SECOND).astype(np.int64)


def test_nothing_ever_ends() -> None:
    # One arrival a second and none leaves: the backlog grows by 1 per second.
    start, _ = spans(np.arange(120.0), np.zeros(120))
    got = backlog_slope(start, np.full(120, 10**15), 0, 120 * SECOND)
    assert got.value == pytest.approx(1.0, rel=1e-3)
    assert got.lo is not None and got.lo > 0.9
    assert (got.n, got.k) == (120, 1)


def test_a_constant_backlog_has_no_slope_but_a_width() -> None:
    # Each second one arrives and stays 5 s.
    start, end = spans(np.arange(-10.0, 100.0), np.full(110, 5.0))
    got = backlog_slope(start, end, 0, 60 * SECOND)
    assert got.value == pytest.approx(0.0, abs=1e-9)
    assert got.lo is not None and got.hi is not None
    # One attempt more or less at the window's end is what can't be told.
    assert got.lo == pytest.approx(-1 / 60) and got.hi == pytest.approx(1 / 60)


def test_attempts_outside_the_window_do_not_count() -> None:
    start, end = spans(np.array([-5.0, 200.0]), np.array([1.0, 1.0]))
    got = backlog_slope(start, end, 0, 60 * SECOND)
    assert (got.value, got.lo, got.hi, got.n) == (None, None, None, 0)
    assert got.reason == "nothing was in flight"


def test_epoch_times_lose_nothing() -> None:
    start, end = spans(np.arange(0.0, 60.0, 0.5), np.linspace(1.0, 9.0, 120))
    epoch = 1_760_000_000 * SECOND
    near = backlog_slope(start, end, 0, 60 * SECOND)
    far = backlog_slope(start + epoch, end + epoch, epoch, epoch + 60 * SECOND)
    assert near == far


def test_misuse() -> None:
    one = np.array([1], dtype=np.int64)
    with pytest.raises(ValueError, match="entries"):
        backlog_slope(one, np.array([1, 2], dtype=np.int64), 0, 5)
    with pytest.raises(ValueError, match="length"):
        backlog_slope(one, one, 5, 5)
    with pytest.raises(ValueError, match="before it starts"):
        backlog_slope(one, one - 1, 0, 5)


@pytest.mark.parametrize(("load", "most"), [(0.5, 0.05), (0.8, 0.06)])
def test_a_steady_queue_is_rarely_called_growing(load: float, most: float) -> None:
    growing = 0
    arrive, response = queue(np.random.default_rng(7), 300, 600, load)
    for a, r in zip(arrive, response, strict=True):
        start, end = spans(a, r)
        lo = backlog_slope(start, end, 0, int(a[-1] * SECOND)).lo
        growing += lo is not None and lo > 0.0
    assert growing / 300 <= most


def test_an_overloaded_queue_is_found() -> None:
    found = 0
    rng = np.random.default_rng(8)
    for _ in range(100):
        gaps, service = rng.exponential(1 / 1.3, 600), rng.exponential(1.0, 600)
        a = np.cumsum(gaps)
        steps = np.concatenate([[0.0], service[:-1] - gaps[1:]])
        walk = np.cumsum(steps)
        start, end = spans(a, walk - np.minimum(0.0, np.minimum.accumulate(walk)) + service)
        lo = backlog_slope(start, end, 0, int(a[-1] * SECOND)).lo
        found += lo is not None and lo > 0.0
    assert found >= 95
