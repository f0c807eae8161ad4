"""One figure from several runs: which method when, golden numbers, and every edge on the way."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.stats.combine import (
    combine_chunk_quantile,
    combine_fraction,
    combine_quantile,
    combine_ratio,
    pooled,
)
from tfbench.stats.fraction import clopper_pearson
from tfbench.stats.interval import Interval
from tfbench.stats.quantile import Clusters
from tfbench.stats.ratio import RatioRun

SECOND = 1_000_000_000


def exponential(seed: int, k: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.exponential(size=n) for _ in range(k)]


def counted(times_s: list[float], window_s: float = 10.0, **sides: Any) -> RatioRun:
    """Events of amount 1 per second of the window, unless `num` or `den` says otherwise."""
    t_ns = (np.array(times_s) * SECOND).astype(np.int64)
    return RatioRun(
        0, int(window_s * SECOND), t_ns, sides.pop("num", np.ones(len(t_ns))), sides.pop("den", None), **sides
    )


# Quantiles ------------------------------------------------------------------------------------------------------------


def test_five_runs_worked_out() -> None:
    # Five runs of 200 values, 1..1000 dealt out: the runs' shares at the median differ as hits do.
    dealt = np.random.default_rng(1).permutation(np.arange(1.0, 1001.0)).reshape(5, 200)
    got = combine_quantile(list(dealt), 0.5)
    hits = (dealt <= 500.0).sum(axis=1)
    # Korn & Graubard: p (1 - p) / var of the pooled share, times (z / t_4)^2; independence allows no more than 1000.
    var = float(((hits - 100.0) ** 2).sum()) * 5 / 4 / 1000**2
    between = 0.25 / var * (1.959964 / 2.776445) ** 2
    assert (got.value, got.k, got.n, got.settled, got.reason) == (500.0, 5, 1000, True, None)
    assert got.method == "ranks by the runs' shares (K=5)"
    assert got.n_eff is not None and got.n_eff <= min(between, 1000.0)
    low, high = clopper_pearson(0.5 * got.n_eff, got.n_eff)
    assert (got.lo, got.hi) == (math.floor(1000 * low), math.ceil(1000 * high) + 1)


def test_three_and_four_are_labelled_few() -> None:
    assert combine_quantile(exponential(2, 3, 500), 0.5).method == "ranks by the runs' shares (K=3, few)"
    assert combine_quantile(exponential(2, 4, 500), 0.5).method == "ranks by the runs' shares (K=4, few)"


@pytest.mark.parametrize(("k", "says"), [(1, "within this run only"), (2, "within these runs only")])
def test_one_or_two_runs_speak_of_themselves_and_say_how_well(k: int, says: str) -> None:
    got = combine_quantile(exponential(3, k, 2000), 0.95)
    assert got.method.startswith(f"approximate: ranks with n_eff (K={k}, {says}), measured coverage ≈ ")
    assert got.settled and got.lo is not None and got.hi is not None
    assert got.n_eff is not None and got.n_eff <= got.n == 2000 * k


def test_two_runs_span_their_own_values() -> None:
    a, b = exponential(4, 2, 1000)
    alike = combine_quantile([a, b * 1.1], 0.5)
    assert alike.lo is not None and alike.hi is not None
    assert alike.lo <= np.quantile(a, 0.5, method="inverted_cdf")
    assert alike.hi >= np.quantile(b * 1.1, 0.5, method="inverted_cdf")
    unlike = combine_quantile([a, b * 1.5], 0.5)
    assert unlike.lo is not None and unlike.lo <= np.quantile(a, 0.5, method="inverted_cdf")
    assert unlike.hi is None
    assert unlike.reason is not None and unlike.reason.startswith("too short to tell how far its requests depend")
    # Two runs that are worlds apart are two observations.
    apart = combine_quantile([a, b * 3.0], 0.5)
    assert (apart.lo, apart.hi) == (None, None) and apart.n_eff is not None and apart.n_eff < 20
    assert apart.reason is not None and "can't be bounded" in apart.reason


def test_fifty_samples_do_not_carry_p99() -> None:
    (x,) = exponential(5, 1, 50)
    got = combine_quantile([x], 0.99)
    assert got.value == x.max()
    assert got.hi is None and not got.settled
    assert got.lo is not None and got.lo < got.value
    assert got.reason == (
        "runs too short for P99 (the weakest is worth 50 independent requests, 1000 needed): run 24 times as long, "
        "or 5 repeats"
    )


def test_an_unsettled_quantile_keeps_its_near_bound_only() -> None:
    runs = exponential(6, 3, 60)
    high, low = combine_quantile(runs, 0.99), combine_quantile(runs, 0.01)
    assert (high.hi, high.settled) == (None, False) and high.lo is not None
    assert (low.lo, low.settled) == (None, False) and low.hi is not None
    assert high.reason is not None and high.reason.startswith("too few requests beyond P99 (all runs together")
    assert "run 6 times as long" in high.reason


def test_all_runs_together_carry_what_none_does_alone() -> None:
    # 3 beyond P99 in each of 5 runs.
    runs = exponential(6, 5, 300)
    assert combine_quantile(runs[:1], 0.99).hi is None
    got = combine_quantile(runs, 0.99)
    assert got.settled and got.lo is not None and got.hi is not None
    assert got.value == float(np.quantile(np.concatenate(runs), 0.99, method="inverted_cdf"))


def test_a_course_that_runs_share_is_no_correlation() -> None:
    rng = np.random.default_rng(6)
    wave = 1.0 + 0.5 * np.sin(np.linspace(0.0, 2.0 * np.pi, 1000))
    swinging = [wave * rng.exponential(size=1000) for _ in range(5)]
    assert combine_quantile(swinging[:1], 0.5).hi is None
    got, still = combine_quantile(swinging, 0.5), combine_quantile(exponential(6, 5, 1000), 0.5)
    assert got.settled and width(got) < 1.5 * width(still)


@pytest.mark.parametrize("k", [3, 5, 10])
def test_a_gap_at_the_quantile_is_spanned_by_observed_values(k: int) -> None:
    # Hits near 40, misses near 400, P95 right between: runs' own quantiles jump, and no request takes 120.
    rng = np.random.default_rng(7)
    runs = [np.where(rng.random(1200) < 0.951, 40.0, 400.0) * np.exp(rng.normal(0.0, 0.1, 1200)) for _ in range(k)]
    got = combine_quantile(runs, 0.95)
    everything = np.concatenate(runs)
    assert got.value in everything and got.lo in everything and got.hi in everything
    assert got.lo is not None and got.hi is not None and got.lo < 80.0 and got.hi > 200.0


@pytest.mark.parametrize("k", [3, 5, 10])
def test_ties_give_closed_intervals(k: int) -> None:
    # A clock of 10 ms: nine in ten attempts read 40.
    rng = np.random.default_rng(8)
    runs = [rng.choice([30.0, 40.0, 50.0], 400, p=[0.05, 0.9, 0.05]) for _ in range(k)]
    got = combine_quantile(runs, 0.5)
    assert (got.value, got.lo, got.hi, got.settled, got.reason) == (40.0, 40.0, 40.0, True, None)
    edge = [10.0 * np.ceil(run / 10.0) for run in exponential(9, k, 2000)]
    assert combine_quantile(edge, 0.5).lo == 10.0 == combine_quantile(edge, 0.5).hi


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_all_equal_is_a_closed_interval(k: int) -> None:
    got = combine_quantile([np.full(2000, 7.0)] * k, 0.5)
    assert (got.value, got.lo, got.hi, got.settled) == (7.0, 7.0, 7.0, True)


def test_a_fifth_of_failures_makes_p95_infinite() -> None:
    runs = exponential(7, 5, 400)
    for run in runs:
        run[::5] = math.inf
    got = combine_quantile(runs, 0.95)
    assert (got.value, got.lo, got.hi, got.settled) == (None, None, None, False)
    assert got.reason == "P95 is infinite: 20 % of the attempts failed"
    # P50 doesn't mind.
    assert combine_quantile(runs, 0.5).hi is not None


def test_a_run_that_failed_voids_no_quantile() -> None:
    runs = exponential(8, 10, 400)
    runs[2][:] = math.inf
    got = combine_quantile(runs, 0.5)
    assert got.value == float(np.quantile(np.concatenate(runs), 0.5, method="inverted_cdf"))
    assert got.settled and got.lo is not None and got.hi is not None
    # The median lies among what came; P95 among what didn't, and says so.
    tail = combine_quantile(runs, 0.95)
    assert (tail.value, tail.hi, tail.settled) == (None, None, False)
    assert tail.reason is not None and "P95 is infinite: 10 % of the attempts failed" in tail.reason


def test_a_share_of_failures_below_the_tail_voids_none_either() -> None:
    rng = np.random.default_rng(10)
    runs = exponential(10, 10, 5000)
    for run in runs:
        run[rng.random(5000) < 0.007] = math.inf
    got = combine_quantile(runs, 0.99)
    assert got.value is not None and got.lo is not None and got.hi is not None and math.isfinite(got.hi)
    # Where as many fail as lie beyond, the upper bound may be among them.
    for run in runs:
        run[rng.random(5000) < 0.0025] = math.inf
    close = combine_quantile(runs, 0.99)
    assert close.value is not None and close.hi is None
    assert close.reason is not None and "so P99 may lie among them" in close.reason


def test_everything_failed() -> None:
    for k in (1, 2, 5):
        got = combine_quantile([np.full(100, math.inf)] * k, 0.5)
        assert (got.value, got.lo, got.hi, got.settled, got.n) == (None, None, None, False, 100 * k)
        assert got.reason is not None and "100 % of the attempts failed" in got.reason


def test_the_upper_bound_of_one_run_may_fall_on_failures() -> None:
    x = np.random.default_rng(9).exponential(size=8000)
    x[np.random.default_rng(10).permutation(8000)[:380]] = math.inf
    got = combine_quantile([x], 0.95)
    assert got.value is not None and got.lo is not None and got.hi is None
    assert got.reason == "no upper bound: 4.75 % of the attempts failed, so P95 may lie among them"


def test_one_pool_serves_several_quantiles() -> None:
    runs = exponential(11, 5, 800)
    pool = pooled(runs)
    for p in (0.5, 0.95, 0.99):
        assert combine_quantile(pool, p) == combine_quantile(runs, p)


def test_no_data() -> None:
    for runs in ([], [np.array([])], [np.array([])] * 5):
        got = combine_quantile(runs, 0.5)
        assert (got.value, got.lo, got.hi, got.n, got.k) == (None, None, None, 0, 0)
        assert got.reason is not None and got.reason.endswith("no data")


def test_a_run_without_data_is_named_and_not_counted() -> None:
    got = combine_quantile([*exponential(13, 4, 300), np.array([])], 0.5)
    assert (got.k, got.method, got.reason) == (4, "ranks by the runs' shares (K=4, few)", "1 of 5 runs have no data")


def test_one_attempt() -> None:
    got = combine_quantile([np.array([3.0])], 0.5)
    assert (got.value, got.lo, got.hi, got.settled, got.n) == (3.0, None, None, False, 1)
    assert combine_quantile([np.array([3.0])] * 5, 0.5).value == 3.0


def test_the_order_of_attempts_matters() -> None:
    x = np.random.default_rng(14).exponential(size=2000)
    mixed, sorted_ = combine_quantile([x], 0.5), combine_quantile([np.sort(x)], 0.5)
    assert mixed.n_eff is not None and sorted_.n_eff is not None
    assert mixed.n_eff > 1000 > 50 > sorted_.n_eff


def test_misuse() -> None:
    with pytest.raises(ValueError, match="NaN"):
        combine_quantile([np.array([1.0, math.nan])], 0.5)
    with pytest.raises(ValueError, match="NaN"):
        combine_quantile([np.array([-math.inf])], 0.5)
    with pytest.raises(ValueError, match="p must"):
        combine_quantile([], 1.5)
    with pytest.raises(ValueError, match="level"):
        combine_quantile([], 0.5, level=95)
    with pytest.raises(ValueError, match="one-dimensional"):
        combine_quantile([np.ones((2, 2))], 0.5)


# Gaps between chunks --------------------------------------------------------------------------------------------------


def test_gaps_are_drawn_by_request() -> None:
    rng = np.random.default_rng(15)
    speed = rng.exponential(size=2000)
    clustered = Clusters(np.repeat(speed, 30), np.repeat(np.arange(2000), 30))
    got = combine_chunk_quantile([clustered], 0.9)
    as_if_independent = combine_quantile([rng.permutation(clustered.values)], 0.9)
    alone = combine_quantile([speed], 0.9)
    assert got.n == 60_000 and got.n_eff is not None and alone.n_eff is not None
    assert got.n_eff == pytest.approx(alone.n_eff, rel=0.01)
    assert width(got) > 4 * width(as_if_independent)
    assert "over requests" in got.method


def test_rows_may_come_in_any_order() -> None:
    rng = np.random.default_rng(16)
    values, owner = rng.exponential(size=3000), np.repeat(np.arange(300), 10)
    order = rng.permutation(3000)
    there = combine_chunk_quantile([Clusters(values, owner)], 0.5)
    back = combine_chunk_quantile([Clusters(values[order], owner[order])], 0.5)
    assert (there.value, there.n_eff) == (back.value, pytest.approx(back.n_eff))


def test_gaps_of_one_request_or_none() -> None:
    one = combine_chunk_quantile([Clusters(np.arange(1.0, 101.0), np.zeros(100, dtype=np.int64))], 0.5)
    assert (one.value, one.hi, one.settled, one.n_eff) == (50.0, None, False, 1.0)
    empty = Clusters(np.array([]), np.array([], dtype=np.int64))
    assert combine_chunk_quantile([empty, empty], 0.5).reason == "2 of 2 runs have no data; no data"
    with pytest.raises(ValueError, match="owners"):
        combine_chunk_quantile([Clusters(np.ones(3), np.zeros(2, dtype=np.int64))], 0.5)


def width(interval: Interval) -> float:
    assert interval.lo is not None and interval.hi is not None
    return interval.hi - interval.lo


# Whatever comes -------------------------------------------------------------------------------------------------------

LATENCY = st.floats(0.0, 1e6) | st.sampled_from([0.0, 1.0, math.inf])
RUN = st.lists(LATENCY, max_size=40).map(lambda x: np.array(x, dtype=np.float64))


def honest(got: Interval) -> None:
    """What `Interval` itself doesn't check."""
    assert got.n >= 0 and got.k >= 0 and got.method
    if got.n_eff is not None:
        assert 1.0 <= got.n_eff <= got.n
    if got.settled:
        assert got.n > 0


@settings(max_examples=150, deadline=None)
@given(runs=st.lists(RUN, max_size=6), p=st.sampled_from([0.05, 0.5, 0.95, 0.99]))
def test_any_latencies_give_an_honest_interval(runs: list[np.ndarray], p: float) -> None:
    got = combine_quantile(runs, p)
    honest(got)
    owners = [np.arange(len(run)) // 3 for run in runs]
    honest(combine_chunk_quantile([Clusters(r, o) for r, o in zip(runs, owners, strict=True)], p))
    good = [run < 2.0 for run in runs]
    for score in (None, runs):
        share = combine_fraction(good, score=score)
        honest(share)
        for number in (share.value, share.lo, share.hi):
            assert number is None or 0.0 <= number <= 1.0


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=40), min_size=1, max_size=6),
    p=st.sampled_from([0.5, 0.95]),
    scale=st.sampled_from([1e-6, 0.5, 1024.0, 1e9]),
)
def test_units_do_not_matter(runs: list[list[float]], p: float, scale: float) -> None:
    small = combine_quantile([np.array(run) for run in runs], p)
    large = combine_quantile([np.array(run) * scale for run in runs], p)
    for a, b in ((small.value, large.value), (small.lo, large.lo), (small.hi, large.hi)):
        assert b is None if a is None else b == pytest.approx(a * scale, rel=1e-6)
    assert (small.method, small.settled) == (large.method, large.settled)


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=40), min_size=3, max_size=6),
    added=st.floats(0.1, 100.0),
)
def test_slower_runs_have_a_larger_figure(runs: list[list[float]], added: float) -> None:
    fast = combine_quantile([np.array(run) for run in runs], 0.5).value
    slow = combine_quantile([np.array(run) + added for run in runs], 0.5).value
    assert fast is not None and slow is not None and slow > fast


@settings(max_examples=150, deadline=None)
@given(
    runs=st.lists(
        st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 1e4) | st.just(0.0)), max_size=25), max_size=6
    ),
    side=st.sampled_from(["rate", "cost", "per event"]),
    size=st.sampled_from([None, 1.0, 50.0]),
)
def test_any_events_give_an_honest_ratio(runs: list[list[tuple[float, float]]], side: str, size: float | None) -> None:
    given_runs = []
    for run in runs:
        amount = np.array([a for _, a in run], dtype=np.float64)
        sides: dict[str, Any] = {
            "rate": {"num": amount, "den": None},
            "cost": {"num": None, "den": amount},
            "per event": {"num": amount, "den": np.ones(len(run))},
        }[side]
        given_runs.append(counted([t for t, _ in run], event_size=size, **sides))
    honest(combine_ratio(given_runs, scale=3.0))
