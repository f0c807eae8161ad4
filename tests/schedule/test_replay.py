"""Replays are exact: every arrival at its own time, at any speed."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.core.errors import ManifestError
from tfbench.core.kinds import Phase
from tfbench.manifest import expand, freeze, load_manifest, parse_manifest
from tfbench.schedule import Schedule, build_schedule, replay_schedule

RECORDED = (0.0, 0.1, 0.1, 1.123456789, 2.0, 3.5)


def make(speed: float = 1.0, timestamps: tuple[float, ...] = RECORDED, **kw: Any) -> Schedule:
    times: dict[str, Any] = {"warmup_s": 0.0, "duration_s": None, "drain_s": 0.0, "count": len(timestamps)}
    return replay_schedule(timestamps, speed, **times | kw)


def test_replay_is_exact() -> None:
    schedule = make()
    assert schedule.offsets_ns.tolist() == [0, 100_000_000, 100_000_000, 1_123_456_789, 2_000_000_000, 3_500_000_000]
    assert (schedule.measure_start_ns, schedule.measure_end_ns) == (0, None)
    assert set(schedule.phases()) == {Phase.MEASURE}


def test_speed_divides_time() -> None:
    assert make(2.0).offsets_ns.tolist() == [0, 50_000_000, 50_000_000, 561_728_394, 1_000_000_000, 1_750_000_000]
    assert make(0.5).offsets_ns.tolist()[-1] == 7_000_000_000


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=50).map(sorted))
def test_whole_nanoseconds_up_to_eleven_days_are_kept(nanoseconds: list[int]) -> None:
    assert make(timestamps=tuple(ns / 1e9 for ns in nanoseconds)).offsets_ns.tolist() == nanoseconds


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50).map(sorted), st.floats(0.01, 100))
def test_any_speed_is_kept_to_the_nanosecond(timestamps: list[float], speed: float) -> None:
    offsets = make(speed, tuple(timestamps)).offsets_ns.tolist()
    for offset, timestamp in zip(offsets, timestamps, strict=True):
        exact = Fraction(timestamp) * 10**9 / Fraction(speed)
        # Half a nanosecond of rounding, and what a float of that size can't tell apart.
        assert abs(offset - exact) <= Fraction(1, 2) + exact / 2**51


def test_duration_cuts_warmup_window_and_drain() -> None:
    schedule = make(warmup_s=0.1, duration_s=1.9, drain_s=1.0, count=None)
    assert schedule.offsets_ns.tolist() == [0, 100_000_000, 100_000_000, 1_123_456_789, 2_000_000_000]
    assert (schedule.measure_start_ns, schedule.measure_end_ns) == (100_000_000, 2_000_000_000)
    assert schedule.phases().tolist() == ["warmup", "measure", "measure", "measure", "drain"]


def test_count_measures_that_many_after_the_warmup() -> None:
    schedule = make(warmup_s=0.05, count=3)
    assert schedule.offsets_ns.tolist() == [0, 100_000_000, 100_000_000, 1_123_456_789]
    assert (schedule.measure_start_ns, schedule.measure_end_ns) == (100_000_000, None)
    with pytest.raises(ManifestError, match="5 timestamps come after the warm-up at speed 1; lower count"):
        make(warmup_s=0.05, count=6)


@pytest.mark.parametrize(
    "bad",
    [
        {"speed": 0.0},
        {"speed": float("inf")},
        {"duration_s": 5.0},
        {"count": None},
        {"timestamps": (1.0, 0.5)},
        {"timestamps": (-1.0, 0.5)},
    ],
)
def test_arguments_no_manifest_allows_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make(**bad)


def test_a_manifest_replays_its_file_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("TIMESTAMP\n" + "\n".join(str(1000 + t) for t in RECORDED), encoding="utf-8")
    path = tmp_path / "m.toml"
    path.write_text('[model]\nname = "m"\n[load]\ntimestamps = "a.csv"\nrates = [1, 2]\n', encoding="utf-8")
    frozen = freeze(load_manifest(path))
    (tmp_path / "a.csv").unlink()
    again = parse_manifest(frozen.document, "frozen")
    for manifest in (frozen.manifest, again):
        plans = expand(manifest)
        made = {plan.load_value: build_schedule(manifest, plan) for plan in plans}
        assert made[1.0].sha256 == make().sha256
        assert made[2.0].sha256 == make(2.0).sha256
        # Every repeat sends at the same times; its prompts are its own.
        assert {build_schedule(manifest, plan).sha256 for plan in plans} == {one.sha256 for one in made.values()}
        assert len({plan.salt for plan in plans}) == len(plans)


def test_what_a_manifest_allows_can_be_built() -> None:
    timestamps = [float(t) for t in np.random.default_rng(1).uniform(0, 30, 200).cumsum().round(3)]
    load = {"timestamps": timestamps, "rates": [0.7, 3, 9], "warmup_s": 3, "count": 190, "repeats": 1}
    manifest = parse_manifest({"model": {"name": "m"}, "load": load}, "test")
    for plan in expand(manifest):
        schedule = build_schedule(manifest, plan)
        assert isinstance(schedule, Schedule)
        assert np.count_nonzero(schedule.phases() == Phase.MEASURE) == 190
