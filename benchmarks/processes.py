"""Processes that real serving shows and a plain queue doesn't: gaps, ties, restarts that differ, drift, stalls.

Times are in ms. Each draws runs of attempts in schedule order and knows what is true of them, exactly or from a long
simulation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from benchmarks.queues import FloatArray, responses, traffic

SERVICE_MS = 25.0
SPREAD = 0.2  # of the log of latencies around 40 ms (a hit in the prefix cache) and 400 ms (a miss)
HIT_MS, MISS_MS = 40.0, 400.0
STALL_MS, STALLED = 200.0, 0.01
MANY = 4_000_000  # attempts behind a truth that no formula gives

Draw = Callable[[np.random.Generator, int, int], FloatArray]


@dataclass(frozen=True, slots=True)
class Process:
    """draw(rng, runs, n) gives latencies float64 [runs, n]; beyond(x, n) the share of them above x."""

    name: str
    draw: Draw
    beyond: Callable[[float, int], float]
    grid: float = 0.0

    def quantile(self, p: float, n: int) -> float:
        """The least x that at least a share p stays within, in runs of n."""
        return _quantile(self, p, n)


@cache
def _quantile(process: Process, p: float, n: int) -> float:
    low, high = 0.0, 1.0
    while process.beyond(high, n) > 1.0 - p:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if process.beyond(middle, n) <= 1.0 - p else (middle, high)
    return process.grid * round(high / process.grid) if process.grid else high


def independent() -> Process:
    return Process(
        "independent",
        lambda rng, runs, n: rng.exponential(SERVICE_MS, (runs, n)),
        lambda x, _: math.exp(-x / SERVICE_MS),
    )


def queue(load: float, *, restart_cv: float = 0.0) -> Process:
    """M/M/1; a restart draws the server's speed anew."""

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        speeds = np.exp(rng.normal(0.0, restart_cv, runs)) if restart_cv else np.ones(runs)
        return np.stack([speed * traffic(rng, 1, n, load * speed).response[0] for speed in speeds]) * SERVICE_MS

    def beyond(x: float, _: int) -> float:
        speeds, weights = _restarts(restart_cv)
        return float(weights @ np.exp(-(1.0 / speeds - load) * x / SERVICE_MS))

    return Process(f"M/M/1 {load:g}" + (f", restart CV {restart_cv:.0%}" if restart_cv else ""), draw, beyond)


def _restarts(cv: float) -> tuple[FloatArray, FloatArray]:
    points, weights = np.polynomial.hermite_e.hermegauss(41)
    return np.exp(cv * points), weights / weights.sum()


def lognormal(restart_cv: float, sigma: float = 0.5) -> Process:
    """Independent latencies around 100 ms; a restart multiplies all of a run's."""
    from scipy.special import ndtr

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        return 100.0 * np.exp(rng.normal(0.0, sigma, (runs, n)) + rng.normal(0.0, restart_cv, (runs, 1)))

    def beyond(x: float, _: int) -> float:
        return float(ndtr(-math.log(x / 100.0) / math.hypot(sigma, restart_cv))) if x > 0 else 1.0

    return Process(f"lognormal, restart CV {restart_cv:.0%}", draw, beyond)


def hits(share: float, *, stretch: float = 1.0) -> Process:
    """A share of hits around 40 ms, the rest misses around 400 ms, in stretches of that mean length; a gap between."""
    from scipy.special import ndtr

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        hit = rng.random((runs, n)) < share if stretch == 1.0 else _stretches(rng, runs, n, 1.0 - share, stretch) < 0.5
        return np.where(hit, HIT_MS, MISS_MS) * np.exp(rng.normal(0.0, SPREAD, (runs, n)))

    def beyond(x: float, _: int) -> float:
        if x <= 0:
            return 1.0
        parts = [w * float(ndtr(-math.log(x / at) / SPREAD)) for w, at in ((share, HIT_MS), (1.0 - share, MISS_MS))]
        return sum(parts)

    return Process(f"hit {share:g}" + (f" in stretches of {stretch:g}" if stretch != 1.0 else ""), draw, beyond)


def _stretches(rng: np.random.Generator, runs: int, n: int, share: float, mean: float) -> FloatArray:
    """1.0 within stretches of geometric mean length that cover `share` of the attempts, 0.0 between; [runs, n]."""
    leave, enter = 1.0 / mean, share / (1.0 - share) / mean
    found = np.zeros((runs, n))
    for row in found:
        at, inside = 0, rng.random() < share
        while at < n:
            length = int(rng.geometric(leave if inside else enter))
            row[at : at + length] = float(inside)
            at, inside = at + length, not inside
    return found


def ticks(load: float, step_ms: float = 10.0) -> Process:
    """M/M/1 as read off a clock of that step: many attempts share a value."""
    rate = (1.0 - load) / SERVICE_MS

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        return step_ms * np.ceil(traffic(rng, runs, n, load).response * SERVICE_MS / step_ms)

    def beyond(x: float, _: int) -> float:
        return math.exp(-rate * step_ms * math.floor(x / step_ms + 1e-9))

    return Process(f"M/M/1 {load:g} in steps of {step_ms:g} ms", draw, beyond, step_ms)


def drift(load: float, swing: float = 0.5) -> Process:
    """M/M/1 whose rate swings by that share around `load`, once a run, however long; each run begins alike."""

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        # Two periods; the second is the run, so that it begins as the first left off.
        service = rng.exponential(1.0, (runs, 2 * n))
        even = np.cumsum(rng.exponential(1.0, (runs, 2 * n)), axis=1) / n  # in periods, at an even rate
        grid = np.linspace(0.0, 3.0, 6001)
        passed = grid + swing * (1.0 - np.cos(2 * np.pi * grid)) / (2 * np.pi)
        arrive = np.interp(even, passed, grid) * n / load
        gaps = np.diff(arrive, axis=1, prepend=0.0)
        return responses(gaps, service, np.zeros(runs))[:, n:] * SERVICE_MS

    return Process(f"M/M/1 {load:g}, rate drifting ±{swing:.0%}", draw, partial(_simulated, draw))


def stalls(load: float, length: float = 5.0) -> Process:
    """M/M/1 in which now and then all attempts of a stretch wait 200 ms more: 1 % of them."""

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        held = _stretches(rng, runs, n, STALLED, length)
        return traffic(rng, runs, n, load).response * SERVICE_MS + STALL_MS * held

    rate = (1.0 - load) / SERVICE_MS

    def beyond(x: float, _: int) -> float:
        return (1 - STALLED) * math.exp(-rate * x) + STALLED * math.exp(-rate * max(0.0, x - STALL_MS))

    return Process(f"M/M/1 {load:g}, stalls", draw, beyond)


def failing(load: float, share: float, burst: float = 1.0) -> Process:
    """M/M/1 of whose attempts that share fails (inf), in bursts of that mean length."""

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        found = traffic(rng, runs, n, load).response * SERVICE_MS
        lost = rng.random((runs, n)) < share if burst == 1.0 else _stretches(rng, runs, n, share, burst) > 0.5
        found[lost] = math.inf
        return found

    rate = (1.0 - load) / SERVICE_MS
    name = f"M/M/1 {load:g}, {share:.1%} fail" + (f" in bursts of {burst:g}" if burst > 1.0 else "")
    return Process(name, draw, lambda x, _: share + (1.0 - share) * math.exp(-rate * x))


def linked(restart_cv: float, rho: float, sigma: float = 0.5) -> Process:
    """As `lognormal`, but a run's speed follows that of the run before it, with that correlation."""
    one = lognormal(restart_cv, sigma)

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        speeds = rng.normal(0.0, restart_cv, runs)
        for i in range(1, runs):
            speeds[i] = rho * speeds[i - 1] + math.sqrt(1.0 - rho * rho) * speeds[i]
        return 100.0 * np.exp(rng.normal(0.0, sigma, (runs, n)) + speeds[:, None])

    return Process(f"lognormal, restart CV {restart_cv:.0%}, repeats follow one another ({rho:g})", draw, one.beyond)


def leaking(times: float, share: float, sigma: float = 0.5) -> Process:
    """Independent latencies around 100 ms, longer by that factor at a run's start, fading over that share of it."""
    steady = lognormal(0.0, sigma)

    def draw(rng: np.random.Generator, runs: int, n: int) -> FloatArray:
        return steady.draw(rng, runs, n) * (1.0 + (times - 1.0) * np.exp(-np.arange(n) / (share * n)))

    return Process(f"warm-up leaks, × {times:g} over {share:.0%}", draw, steady.beyond)


@cache
def _many(draw: Draw, n: int) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(20)
    per = max(1, 400_000 // n)
    return np.sort(np.concatenate([draw(rng, per, n).ravel() for _ in range(max(1, MANY // (per * n)))]))


def _simulated(draw: Draw, x: float, n: int) -> float:
    found = _many(draw, n)
    return 1.0 - float(np.searchsorted(found, x, side="right")) / len(found)
