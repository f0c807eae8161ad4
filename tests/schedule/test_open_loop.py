"""Open-loop schedules follow their law, are never rescaled, and are the same for the same seed."""

import hashlib
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tfbench.core.errors import ManifestError
from tfbench.core.kinds import Phase
from tfbench.manifest import expand, parse_manifest
from tfbench.manifest.plan import run_seed
from tfbench.schedule import Schedule, build_schedule, open_schedule


def make(
    process: str = "poisson", rate: float = 2.0, burstiness: float | None = None, seed: int = 1, **kw: Any
) -> Schedule:
    times: dict[str, Any] = {"warmup_s": 0.0, "duration_s": 10_000.0, "drain_s": 0.0, "count": None}
    return open_schedule(process, rate, burstiness, seed, **{**times, **kw})


def gaps_s(schedule: Schedule) -> Any:
    # The first gap is drawn like the others: the process starts at time 0.
    return np.diff(schedule.offsets_ns, prepend=0) / 1e9


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_gamma_gaps_follow_the_law(burstiness: float, seed: int) -> None:
    gaps = gaps_s(make("gamma", 2.0, burstiness, seed))
    law = stats.gamma(a=burstiness, scale=1 / (2.0 * burstiness))
    assert law.mean() == pytest.approx(0.5)
    assert stats.kstest(gaps, law.cdf).pvalue > 0.01
    # The test can tell: neighbouring shapes fail it.
    for other in (burstiness * 0.8, burstiness * 1.25):
        assert stats.kstest(gaps, stats.gamma(a=other, scale=1 / (2.0 * other)).cdf).pvalue < 1e-4


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_are_exponential_and_independent(seed: int) -> None:
    gaps = gaps_s(make("poisson", 2.0, seed=seed))
    assert stats.kstest(gaps, stats.expon(scale=0.5).cdf).pvalue > 0.01
    lag_one = np.corrcoef(gaps[:-1], gaps[1:])[0, 1]
    assert abs(lag_one) < 4 / math.sqrt(len(gaps))


@pytest.mark.parametrize(("process", "burstiness"), [("poisson", None), ("gamma", 0.25), ("gamma", 4.0)])
def test_the_number_of_arrivals_is_as_random_as_the_law(process: str, burstiness: float | None) -> None:
    # Var N → N / burstiness for a renewal process. A schedule rescaled to its nominal end would have Var N = 0.
    counts = [len(make(process, 10.0, burstiness, seed, duration_s=100.0).offsets_ns) for seed in range(400)]
    expected = 1000 / (burstiness or 1.0)
    assert np.mean(counts) == pytest.approx(1000, abs=4 * math.sqrt(expected / 400) + 2)
    assert np.var(counts) == pytest.approx(expected, rel=0.3)


def test_first_gap_is_drawn_too() -> None:
    seeds = [run_seed(seed, 2.0, 0)[0] for seed in range(500)]
    firsts = [make(seed=seed, duration_s=60.0).offsets_ns[0] / 1e9 for seed in seeds]
    assert stats.kstest(firsts, stats.expon(scale=0.5).cdf).pvalue > 0.01


def test_constant_gaps_do_not_drift() -> None:
    offsets = make("constant", 3.0, duration_s=1000.0).offsets_ns
    assert len(offsets) == 2999
    exact = np.array([round(k * 10**9 / 3) for k in range(1, 3000)])
    assert np.array_equal(offsets, exact)
    assert np.array_equal(make("constant", 4.0, duration_s=1.0, warmup_s=1.0).offsets_ns, np.arange(1, 8) * 250_000_000)


def test_a_longer_run_begins_like_the_shorter() -> None:
    short, long = make(duration_s=50.0), make(duration_s=100_000.0)
    assert len(long.offsets_ns) > 65_536
    assert np.array_equal(short.offsets_ns, long.offsets_ns[: len(short.offsets_ns)])


def test_duration_covers_warmup_window_and_drain() -> None:
    schedule = make(rate=100.0, warmup_s=2.0, duration_s=6.0, drain_s=3.0)
    phases = schedule.phases()
    offsets = schedule.offsets_ns / 1e9
    assert (schedule.measure_start_ns, schedule.measure_end_ns) == (2_000_000_000, 8_000_000_000)
    assert offsets[-1] < 11.0
    assert set(phases) == {Phase.WARMUP, Phase.MEASURE, Phase.DRAIN}
    assert np.array_equal(phases == Phase.WARMUP, offsets < 2.0)
    assert np.array_equal(phases == Phase.DRAIN, offsets >= 8.0)
    for phase, expected in ((Phase.WARMUP, 200), (Phase.MEASURE, 600), (Phase.DRAIN, 300)):
        assert np.count_nonzero(phases == phase) == pytest.approx(expected, abs=4 * math.sqrt(expected))


@pytest.mark.parametrize("process", ["poisson", "gamma", "constant"])
def test_count_measures_exactly_that_many_after_the_warmup(process: str) -> None:
    schedule = make(process, 50.0, 0.5, warmup_s=2.0, duration_s=None, count=70_000)
    phases = schedule.phases()
    assert np.count_nonzero(phases == Phase.MEASURE) == 70_000
    assert np.count_nonzero(phases == Phase.DRAIN) == 0
    assert np.count_nonzero(phases == Phase.WARMUP) > 0
    assert schedule.measure_end_ns is None
    assert schedule.measure_start_ns == schedule.offsets_ns[phases == Phase.MEASURE][0] >= 2_000_000_000


def test_an_infinite_rate_sends_all_at_once() -> None:
    schedule = make(rate=math.inf, duration_s=None, count=5)
    assert schedule.offsets_ns.tolist() == [0] * 5
    assert (schedule.measure_start_ns, schedule.measure_end_ns) == (0, None)
    assert set(schedule.phases()) == {Phase.MEASURE}


def test_hash_is_over_offsets_and_window() -> None:
    schedule = make("constant", 1.0, warmup_s=1.0, duration_s=2.0, drain_s=1.0)
    by_hand = struct.pack("<3q", 1_000_000_000, 2_000_000_000, 3_000_000_000)
    by_hand += struct.pack("<2q", 1_000_000_000, 3_000_000_000)
    assert schedule.sha256 == hashlib.sha256(by_hand).hexdigest()
    burst = make(rate=math.inf, duration_s=None, count=1)
    assert burst.sha256 == hashlib.sha256(struct.pack("<3q", 0, 0, -1)).hexdigest()


def test_schedules_are_these_for_these_seeds() -> None:
    # A change of NumPy or of the code that changes a published schedule must be seen here.
    assert make("poisson", 8.0, seed=7, duration_s=60.0).sha256[:16] == "ace1bdad4c55adca"
    assert make("gamma", 8.0, 0.5, seed=7, duration_s=60.0).sha256[:16] == "fce0847ee590c4ce"
    assert make("poisson", 8.0, seed=2**63 - 1, duration_s=60.0).offsets_ns[:2].tolist() == [24117131, 103460089]


def test_runs_share_a_schedule_only_across_arms() -> None:
    document = {"model": {"name": "m"}, "load": {"rates": [4, 8], "repeats": 4, "duration_s": 30}}
    manifest = parse_manifest(document, "test")
    other = parse_manifest({**document, "model": {"name": "other"}, "endpoint": {"adapter": "vllm"}}, "test")
    hashes = [build_schedule(manifest, plan).sha256 for plan in expand(manifest)]
    assert len(set(hashes)) == 8
    assert hashes == [build_schedule(other, plan).sha256 for plan in expand(other)]


def test_offsets_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        make().offsets_ns[0] = 1


@pytest.mark.parametrize(
    "bad",
    [
        {"process": "weibull"},
        {"rate": 0.0},
        {"rate": math.nan},
        {"rate": -1.0},
        {"process": "gamma"},
        {"process": "gamma", "burstiness": 0.0},
        {"count": 5},
        {"duration_s": None},
        {"duration_s": None, "count": 0},
        {"duration_s": None, "count": 10_000_001},
        {"duration_s": math.inf},
        {"duration_s": math.nan},
        {"warmup_s": -1.0},
        {"drain_s": 1e18},
        {"rate": math.inf},
        {"rate": math.inf, "duration_s": None, "count": 5, "warmup_s": 1.0},
    ],
)
def test_arguments_no_manifest_allows_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make(**bad)


@pytest.mark.parametrize("process", ["poisson", "constant"])
def test_memory_is_bounded_whoever_asks(process: str) -> None:
    with pytest.raises(ManifestError, match="more than 20,000,000 arrivals in one run; lower rates or duration_s"):
        make(process, 1e9, duration_s=3600.0)


@settings(max_examples=60, deadline=None)
@given(
    process=st.sampled_from(["poisson", "gamma", "constant"]),
    rate=st.floats(0.01, 500),
    burstiness=st.floats(0.01, 1000),
    seed=st.integers(0, 2**63 - 1),
    warmup=st.floats(0, 20),
    duration=st.floats(0.1, 20) | st.none(),
    drain=st.floats(0, 20),
    count=st.integers(1, 500),
)
def test_every_schedule_is_sorted_inside_its_run_and_repeatable(
    process: str,
    rate: float,
    burstiness: float,
    seed: int,
    warmup: float,
    duration: float | None,
    drain: float,
    count: int,
) -> None:
    times: dict[str, Any] = {"warmup_s": warmup, "duration_s": duration, "drain_s": drain}
    times["count"] = count if duration is None else None
    schedule = make(process, rate, burstiness, seed, **times)
    offsets = schedule.offsets_ns
    assert offsets.dtype == np.int64
    assert offsets.size == 0 or offsets[0] >= 0
    assert bool(np.all(np.diff(offsets) >= 0))
    assert make(process, rate, burstiness, seed, **times).sha256 == schedule.sha256
    phases = schedule.phases()
    assert phases.tolist() == sorted(phases.tolist(), key=["warmup", "measure", "drain"].index)
    if duration is None:
        assert np.count_nonzero(phases == Phase.MEASURE) == count
    else:
        assert offsets.size == 0 or offsets[-1] < round(warmup * 1e9) + round(duration * 1e9) + round(drain * 1e9)
