import pytest

from tfbench.bounds import Device, ModelShape, Roofline, Work, device, power_w, step_bound, step_energy_j
from tfbench.core.errors import UsageError


def test_power_runs_from_idle_to_peak(plain: Device) -> None:
    assert [power_w(plain, u) for u in (0.0, 0.5, 1.0)] == [100, 300, 500]


def test_energy_is_power_times_time_over_the_group(plain: Device, llama: ModelShape) -> None:
    alone = Roofline(plain, llama)
    bound = step_bound(alone, Work(0, 1, 100))
    assert step_energy_j(alone, bound) == pytest.approx(500 * bound.total_ns * 1e-9)
    pair = Roofline(plain, llama, tp=2, link="slow")
    split = step_bound(pair, Work(0, 1, 100))
    busy_s = max(split.compute_ns, split.memory_ns) * 1e-9
    waits_s = split.total_ns * 1e-9 - busy_s
    assert step_energy_j(pair, split) == pytest.approx(2 * (500 * busy_s + 100 * waits_s))


def test_unknown_power_is_said_and_not_guessed() -> None:
    with pytest.raises(UsageError, match="cpu-core: the profile has no power"):
        power_w(device("cpu-core"), 0.5)
