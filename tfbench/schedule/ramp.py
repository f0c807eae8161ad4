"""Open-loop schedules whose rate moves over the window."""

import numpy as np
import numpy.typing as npt

from tfbench.manifest import Ramp
from tfbench.schedule.open_loop import Schedule, close_schedule, unit_process

_NS = 1_000_000_000


def ramp_schedule(
    process: str,
    rate: float,
    ramp: Ramp,
    burstiness: float | None,
    seed: int,
    *,
    warmup_s: float,
    duration_s: float,
    drain_s: float,
) -> Schedule:
    """Arrivals of `process` at a rate r(t): `rate` through the warm-up, moving over the window, `ramp.to` in the drain.

    With Λ(t) the integral of r, arrival i comes at Λ⁻¹(u_i), u_i the i-th point of the process at rate 1 (time
    rescaling; Cox and Lewis 1966). Poisson stays Poisson, gaps keep their law and independence in units of expected
    arrivals, and the number of arrivals is as random as the law makes it. Over the window, x seconds into it:
    linear r = rate + (to − rate)·x/duration; exponential r = rate·(to/rate)^(x/duration). ManifestError where the law
    makes more than twice MAX_ARRIVALS; ValueError for arguments no manifest allows.
    """
    if process not in ("constant", "poisson", "gamma") or not 0 < rate < float("inf") or not duration_s > 0:
        raise ValueError(
            f"a ramp needs a known process, a finite rate and a duration, got {process} {rate} {duration_s}"
        )
    in_warmup = rate * warmup_s
    in_window = ramp.mean_rate(rate) * duration_s
    points = unit_process(process, burstiness, seed, in_warmup + in_window + ramp.to * drain_s)
    expected = points / _NS
    at_window, at_drain = np.searchsorted(expected, [in_warmup, in_warmup + in_window])
    warmup, window, drain = np.split(expected, [at_window, at_drain])
    seconds = np.concatenate(
        [
            warmup / rate,
            warmup_s + _into_window(np.clip(window - in_warmup, 0, in_window), rate, ramp, duration_s),
            warmup_s + duration_s + (drain - in_warmup - in_window) / ramp.to,
        ]
    )
    start_ns, end_ns = round(warmup_s * _NS), round(warmup_s * _NS) + round(duration_s * _NS)
    stop_ns = end_ns + round(drain_s * _NS)
    # Where two pieces meet, the last bit of a float may disagree with the order, or with the end of the run.
    offsets = np.maximum.accumulate(np.rint(np.minimum(seconds * _NS, stop_ns)).astype(np.int64))
    return close_schedule(offsets[offsets < stop_ns], start_ns, end_ns)


def _into_window(
    arrivals: npt.NDArray[np.float64], rate: float, ramp: Ramp, duration_s: float
) -> npt.NDArray[np.float64]:
    """Seconds into the window until `arrivals` are expected: the inverse of the rate's integral."""
    growth = ramp.growth(rate)
    if growth != 0:
        inverse: npt.NDArray[np.float64] = np.log1p(arrivals * growth / (rate * duration_s)) * (duration_s / growth)
        return inverse
    # The root of rate·x + slope·x²/2 = arrivals in the form that loses no digits where the slope is small.
    slope = (ramp.to - rate) / duration_s
    return 2 * arrivals / (rate + np.sqrt(np.maximum(rate * rate + 2 * slope * arrivals, 0)))
