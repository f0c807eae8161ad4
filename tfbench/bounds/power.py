"""Electrical power of a device, and energy of a step."""

from tfbench.bounds.device import Device
from tfbench.bounds.roofline import Roofline, StepBound
from tfbench.core.errors import UsageError


def power_w(device: Device, utilisation: float) -> float:
    """Power of one device that is busy `utilisation` (0 to 1) of the time: idle + (peak − idle)·u.

    The linear model of Fan, Weber and Barroso, "Power provisioning for a warehouse-sized computer" (ISCA 2007).
    UsageError where the profile has no power.
    """
    if device.idle_w is None or device.peak_w is None:
        raise UsageError(f"{device.name}: the profile has no power; add [idle_w] and [peak_w]")
    return device.idle_w + (device.peak_w - device.idle_w) * utilisation


def step_energy_j(roofline: Roofline, bound: StepBound) -> float:
    """Energy, joules, that all devices of the group take for a step of `roofline` bounded by `bound`.

    A device counts as busy while the larger of compute and memory lasts, and draws idle power for the rest.
    """
    busy = min(1.0, max(bound.compute_ns, bound.memory_ns) / bound.total_ns)
    return power_w(roofline.device, busy) * bound.total_ns * 1e-9 * roofline.tp
