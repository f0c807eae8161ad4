import dataclasses

import pytest

from tfbench.bounds import Device, Rates, Roofline, Work, model_shape, step_bound
from tfbench.engine.power import EnergyMeter
from tfbench.engine.step_time import StepTime

SHAPE = model_shape("llama-3.1-8b")
DEVICE = Device(
    name="d",
    title="d",
    rates=Rates(bf16=1e15),
    bandwidth_bytes_per_s=1e12,
    memory_bytes=1e11,
    idle_w=100.0,
    peak_w=500.0,
)


def test_energy_is_busy_power_in_steps_and_idle_power_between() -> None:
    roofline = Roofline(device=DEVICE, shape=SHAPE)
    meter = EnergyMeter(roofline, 1_000)
    assert meter.joules(1_000_001_000) == pytest.approx(100.0)
    work = Work(prefill_tokens=0, decode_seqs=1, context_tokens=100)
    meter.observe_step(work)
    bound = step_bound(roofline, work)
    step_s = bound.total_ns * 1e-9
    # No launch time, no links: the device is busy, at its peak power, for the whole step.
    assert meter.joules(1_000_001_000) == pytest.approx(500.0 * step_s + 100.0 * (1 - step_s))


def test_energy_is_unknown_without_hardware_or_its_power() -> None:
    silent = Roofline(device=dataclasses.replace(DEVICE, idle_w=None), shape=SHAPE)
    for model in (StepTime(), silent):
        meter = EnergyMeter(model, 0)
        meter.observe_step(Work(0, 1, 10))
        assert meter.joules(10**9) is None
