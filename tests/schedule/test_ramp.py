"""Ramps: rescaled by the integral of their rate, arrivals are the unit-rate process of the law."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tfbench.core.errors import ManifestError
from tfbench.core.kinds import Phase
from tfbench.manifest import Ramp, expand, parse_manifest
from tfbench.schedule import Schedule, build_schedule, open_schedule, ramp_schedule

WARMUP, DURATION, DRAIN = 100.0, 1000.0, 50.0
_Floats = npt.NDArray[np.float64]


def make(
    shape: str = "linear", rate: float = 2.0, to: float = 8.0, process: str = "poisson", seed: int = 1, **kw: Any
) -> Schedule:
    times: dict[str, Any] = {"warmup_s": WARMUP, "duration_s": DURATION, "drain_s": DRAIN}
    burstiness = kw.pop("burstiness", None)
    return ramp_schedule(process, rate, Ramp.model_validate({"to": to, "shape": shape}), burstiness, seed, **times | kw)


def rate_at(seconds: _Floats, shape: str, rate: float, to: float) -> _Floats:
    part = np.clip((seconds - WARMUP) / DURATION, 0, 1)
    return rate + (to - rate) * part if shape == "linear" else rate * (to / rate) ** part


def expected_until(seconds: _Floats, shape: str, rate: float, to: float) -> _Floats:
    """The integral of the rate, by the trapezoid rule: nothing of the code's closed forms."""
    grid = np.linspace(0, WARMUP + DURATION + DRAIN, 115_001)
    rates = rate_at(grid, shape, rate, to)
    integral = np.concatenate([[0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(grid))])
    return np.interp(seconds, grid, integral)


RAMPS = [("linear", 2.0, 8.0), ("linear", 8.0, 1.0), ("exponential", 1.0, 16.0), ("exponential", 9.0, 1.0)]


@pytest.mark.parametrize(("shape", "rate", "to"), RAMPS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rescaled_poisson_arrivals_are_unit_rate_exponential(shape: str, rate: float, to: float, seed: int) -> None:
    seconds = make(shape, rate, to, seed=seed).offsets_ns / 1e9
    gaps = np.diff(expected_until(seconds, shape, rate, to), prepend=0)
    assert stats.kstest(gaps, stats.expon().cdf).pvalue > 0.01
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / math.sqrt(len(gaps))
    # The test can tell: rescaled by a steady rate they are not.
    assert stats.kstest(np.diff(seconds) * len(seconds) / seconds[-1], stats.expon().cdf).pvalue < 1e-4


@pytest.mark.parametrize(("shape", "rate", "to"), RAMPS)
@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_rescaled_gamma_gaps_keep_their_shape(shape: str, rate: float, to: float, burstiness: float) -> None:
    seconds = make(shape, rate, to, "gamma", 5, burstiness=burstiness).offsets_ns / 1e9
    gaps = np.diff(expected_until(seconds, shape, rate, to), prepend=0)
    assert stats.kstest(gaps, stats.gamma(a=burstiness, scale=1 / burstiness).cdf).pvalue > 0.01
    assert stats.kstest(gaps, stats.expon().cdf).pvalue < 1e-4


@pytest.mark.parametrize(("shape", "rate", "to"), RAMPS)
def test_constant_arrivals_come_one_expected_arrival_apart(shape: str, rate: float, to: float) -> None:
    seconds = make(shape, rate, to, "constant").offsets_ns / 1e9
    expected = expected_until(seconds, shape, rate, to)
    assert np.allclose(expected, np.arange(1, len(expected) + 1), atol=1e-4)


@pytest.mark.parametrize(("shape", "rate", "to"), RAMPS)
def test_within_a_window_arrivals_lie_as_the_rate_does(shape: str, rate: float, to: float) -> None:
    # Given their number, a Poisson process's arrivals are independent draws from the rate's own density.
    seconds = np.concatenate([make(shape, rate, to, seed=seed).offsets_ns for seed in range(5)]) / 1e9
    inside = seconds[(seconds >= WARMUP) & (seconds < WARMUP + DURATION)]
    low, high = expected_until(np.array([WARMUP, WARMUP + DURATION]), shape, rate, to)
    uniform = (expected_until(inside, shape, rate, to) - low) / (high - low)
    assert stats.kstest(uniform, stats.uniform().cdf).pvalue > 0.01


def test_the_number_of_arrivals_is_as_random_as_the_law() -> None:
    counts = [len(make(seed=seed, warmup_s=0, duration_s=100, drain_s=0).offsets_ns) for seed in range(400)]
    assert np.mean(counts) == pytest.approx(500, abs=4 * math.sqrt(500 / 400))
    assert np.var(counts) == pytest.approx(500, rel=0.3)


@pytest.mark.parametrize("process", ["poisson", "gamma", "constant"])
@pytest.mark.parametrize("shape", ["linear", "exponential"])
def test_a_ramp_that_does_not_move_is_the_steady_process(process: str, shape: str) -> None:
    steady = open_schedule(process, 4.0, 0.5, 3, warmup_s=WARMUP, duration_s=DURATION, drain_s=DRAIN, count=None)
    ramp = make(shape, 4.0, 4.0, process, 3, burstiness=0.5)
    assert (ramp.measure_start_ns, ramp.measure_end_ns) == (steady.measure_start_ns, steady.measure_end_ns)
    # Each gap of the steady process is rounded to a nanosecond of its own.
    assert np.allclose(ramp.offsets_ns, steady.offsets_ns, rtol=0, atol=20_000)


def test_warmup_and_drain_have_the_rates_of_their_ends() -> None:
    phases = make("exponential", 20.0, 200.0).phases()
    for phase, expected in (
        (Phase.WARMUP, 20 * WARMUP),
        (Phase.MEASURE, 180 / math.log(10) * DURATION),
        (Phase.DRAIN, 200 * DRAIN),
    ):
        assert np.count_nonzero(phases == phase) == pytest.approx(expected, abs=4 * math.sqrt(expected))


def test_a_manifests_ramp_is_built_per_load_point() -> None:
    load = {"rates": [2, 4], "ramp": {"to": 16}, "duration_s": 60, "warmup_s": 5, "drain_s": 5, "repeats": 2}
    manifest = parse_manifest({"model": {"name": "m"}, "load": load}, "test")
    made = [build_schedule(manifest, plan) for plan in expand(manifest)]
    assert len({schedule.sha256 for schedule in made}) == 4
    plan = expand(manifest)[0]
    times = {"warmup_s": 5.0, "duration_s": 60.0, "drain_s": 5.0}
    direct = ramp_schedule("poisson", plan.load_value, Ramp(to=16), None, plan.seed, **times)
    assert made[0].sha256 == direct.sha256


def test_ramps_are_these_for_these_seeds() -> None:
    # A change that changes a published schedule must be seen here.
    times = {"warmup_s": 5.0, "duration_s": 60.0, "drain_s": 5.0}
    assert make(seed=7, **times).sha256[:16] == "3ddbcf73ce606d36"
    assert make("exponential", process="gamma", burstiness=0.5, seed=7, **times).sha256[:16] == "c05b1815ad503db3"


@pytest.mark.parametrize("bad", [{"rate": 0.0}, {"rate": math.inf}, {"process": "weibull"}, {"duration_s": 0.0}])
def test_arguments_no_manifest_allows_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a ramp needs"):
        make(**bad)


def test_memory_is_bounded_whoever_asks() -> None:
    with pytest.raises(ManifestError, match="more than 20,000,000 arrivals in one run"):
        make(to=1e9)


@settings(max_examples=80, deadline=None)
@given(
    process=st.sampled_from(["poisson", "gamma", "constant"]),
    shape=st.sampled_from(["linear", "exponential"]),
    rate=st.floats(1e-300, 200) | st.floats(0.1, 200),
    to=st.floats(1e-300, 200) | st.floats(0.1, 200),
    seed=st.integers(0, 2**63 - 1),
    warmup=st.floats(0, 20),
    duration=st.floats(0.1, 20),
    drain=st.floats(0, 20),
)
def test_every_ramp_is_sorted_inside_its_run_and_repeatable(
    process: str, shape: str, rate: float, to: float, seed: int, warmup: float, duration: float, drain: float
) -> None:
    times = {"warmup_s": warmup, "duration_s": duration, "drain_s": drain, "burstiness": 0.5}
    schedule = make(shape, rate, to, process, seed, **times)
    offsets = schedule.offsets_ns
    assert offsets.dtype == np.int64
    assert bool(np.all(np.diff(offsets, prepend=0) >= 0))
    assert offsets.size == 0 or offsets[-1] < round(warmup * 1e9) + round(duration * 1e9) + round(drain * 1e9)
    assert make(shape, rate, to, process, seed, **times).sha256 == schedule.sha256
