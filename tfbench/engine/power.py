"""Energy of the engine: what its devices would have taken, by the power model of `tfbench.bounds`."""

from tfbench.bounds import Roofline, Work, step_bound
from tfbench.bounds.power import power_w, step_energy_j
from tfbench.engine.step_time import StepModel


class EnergyMeter:
    """Joules since `start_ns`: each step's, and idle power between steps.

    Unknown where steps don't run on hardware, or on hardware whose power isn't stated.
    """

    def __init__(self, model: StepModel, start_ns: int) -> None:
        known = isinstance(model, Roofline) and model.device.idle_w is not None and model.device.peak_w is not None
        self._roofline = model if isinstance(model, Roofline) and known else None
        self._start_ns = start_ns
        self._busy_ns = 0.0
        self._busy_j = 0.0

    def observe_step(self, work: Work) -> None:
        """Count a step."""
        if self._roofline is not None:
            bound = step_bound(self._roofline, work)
            self._busy_ns += bound.total_ns
            self._busy_j += step_energy_j(self._roofline, bound)

    def joules(self, now_ns: int) -> float | None:
        """Energy up to `now_ns`."""
        if self._roofline is None:
            return None
        idle_ns = max(now_ns - self._start_ns - self._busy_ns, 0.0)
        return self._busy_j + power_w(self._roofline.device, 0.0) * self._roofline.tp * idle_ns * 1e-9
