"""Queues whose truth is exact: where intervals can be held against it. Mean service time 1."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Service:
    """Service times: with probability weights[i] exponential with rates[i]; their mean is 1."""

    name: str
    weights: tuple[float, ...]
    rates: tuple[float, ...]

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        times = rng.standard_exponential(shape)
        if self.rates != (1.0,):
            times /= (
                self.rates[0] if len(self.rates) == 1 else np.where(rng.random(shape) < self.weights[0], *self.rates)
            )
        return times


def _hyperexponential(scv: float) -> Service:
    """Two rates with balanced means; `scv` is variance over squared mean."""
    often = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
    return Service("M/H2/1", (often, 1.0 - often), (2.0 * often, 2.0 * (1.0 - often)))


EXPONENTIAL = Service("M/M/1", (1.0,), (1.0,))
# Twice the variance of exponential service, and a longer tail.
HEAVY = _hyperexponential(2.0)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Runs of one queue in steady state, float64 [runs, n] each: `gaps` are the times before the arrivals."""

    gaps: FloatArray
    arrive: FloatArray
    service: FloatArray
    response: FloatArray


@cache
def waiting_tail(service: Service, load: float) -> tuple[tuple[float, float], ...]:
    """(c, t) of P(wait > x) = sum of c exp(-t x): the Pollaczek-Khinchine transform, inverted at its poles."""
    from scipy.optimize import brentq

    def denominator(t: float) -> float:
        return 1.0 - load * sum(w / (r - t) for w, r in zip(service.weights, service.rates, strict=True))

    terms, below = [], 0.0
    for rate in sorted(service.rates):
        edge = (rate - below) * 1e-12
        t = float(brentq(denominator, below + (edge if below else 0.0), rate - edge, xtol=1e-15))
        slope = load * sum(w / (r - t) ** 2 for w, r in zip(service.weights, service.rates, strict=True))
        terms.append(((1.0 - load) / (slope * t), t))
        below = rate
    return tuple(terms)


def response_tail(x: float, load: float, service: Service = EXPONENTIAL) -> float:
    """P(response time > x)."""
    phases = list(zip(service.weights, service.rates, strict=True))
    return sum(
        w * math.exp(-r * x)
        + sum(c * w * r * (math.exp(-t * x) - math.exp(-r * x)) / (r - t) for c, t in waiting_tail(service, load))
        for w, r in phases
    )


@cache
def limit(share: float, load: float, service: Service = EXPONENTIAL) -> float:
    """The response time that `share` of the attempts stay within."""
    from scipy.optimize import brentq

    if len(service.rates) == 1:
        return -math.log1p(-share) / (1.0 - load)
    return float(brentq(lambda x: response_tail(x, load, service) - (1.0 - share), 0.0, 1e4, xtol=1e-12))


def steady_waits(rng: np.random.Generator, count: int, load: float, service: Service = EXPONENTIAL) -> FloatArray:
    """What `count` arrivals find in steady state, float64 [count]."""
    terms = waiting_tail(service, load)
    shares = [c for c, _ in terms]
    which = rng.choice(len(terms) + 1, count, p=[*shares, 1.0 - sum(shares)])
    rates = np.array([*(t for _, t in terms), math.inf])
    return rng.exponential(1.0, count) / rates[which]


def responses(gaps: FloatArray, service: FloatArray, first_wait: FloatArray) -> FloatArray:
    """Lindley's recursion for all runs at once: response times [runs, n]; `gaps[:, i]` is the time before arrival i."""
    result = np.empty_like(gaps)
    low = np.empty(gaps.shape[1])
    # Run by run, in place: a run of 100,000 stays in the processor's cache.
    for walk, gap, served, first in zip(result, gaps, service, first_wait, strict=True):
        walk[0] = first
        np.subtract(served[:-1], gap[1:], out=walk[1:])
        np.cumsum(walk, out=walk)
        np.minimum.accumulate(walk, out=low)
        walk -= np.minimum(low, 0.0, out=low)
        walk += served
    return result


def traffic(rng: np.random.Generator, runs: int, n: int, load: float, service: Service = EXPONENTIAL) -> Traffic:
    """`runs` runs of n attempts, each from its steady state on."""
    gaps = rng.exponential(1.0 / load, (runs, n))
    times = service.draw(rng, (runs, n))
    response = responses(gaps, times, steady_waits(rng, runs, load, service))
    return Traffic(gaps, np.cumsum(gaps, axis=1), times, response)


def queue(
    rng: np.random.Generator, runs: int, n: int, load: float, service: Service = EXPONENTIAL
) -> tuple[FloatArray, FloatArray]:
    """Arrival times and response times, float64 [runs, n]."""
    drawn = traffic(rng, runs, n, load, service)
    return drawn.arrive, drawn.response


def product_tail_quantile(p: float, load: float, service: Service = EXPONENTIAL) -> float:
    """The p-quantile of response time x an independent unit exponential: P(R E > y) = E[exp(-y / R)].

    The density of R is a sum of a exp(-b x) terms, each giving 2 a sqrt(y / b) K1(2 sqrt(b y)).
    """
    from scipy.optimize import brentq
    from scipy.special import k1

    terms: list[tuple[float, float]] = []
    for w, r in zip(service.weights, service.rates, strict=True):
        terms.append((w * r, r))
        for c, t in waiting_tail(service, load):
            terms += [(c * w * r * t / (r - t), t), (-c * w * r * r / (r - t), r)]

    def tail(y: float) -> float:
        return sum(2.0 * a * math.sqrt(y / b) * float(k1(2.0 * math.sqrt(b * y))) for a, b in terms)

    return float(brentq(lambda y: tail(y) - (1.0 - p), 1e-9, 1e4, xtol=1e-12))


def number_shares(servers: int, load: float) -> FloatArray:
    """P(N = k) of M/M/c in steady state, float64 [most + 1]; beyond `most` lies less than 1e-15."""
    work = servers * load
    most = servers + math.ceil(-35.0 / math.log(load))
    steps = np.log(work) - np.log(np.minimum(np.arange(1, most + 1), servers))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    shares = np.exp(logs - logs.max())
    return np.asarray(shares / shares.sum())


def many_servers(rng: np.random.Generator, runs: int, n: int, servers: int, load: float) -> FloatArray:
    """Response times [runs, n] of M/M/c from steady state on, which is what the first arrival finds.

    First come, first served: an arrival takes the server that is free first (Kiefer and Wolfowitz 1955).
    """
    free = _found_by_the_first(rng, runs, servers, load)
    found = np.empty((n, runs))
    now, every = np.zeros(runs), np.arange(runs)
    for response in found:
        first = free.argmin(axis=1)
        end = np.maximum(free[every, first], now) + rng.standard_exponential(runs)
        free[every, first] = end
        np.subtract(end, now, out=response)
        now += rng.standard_exponential(runs) / (servers * load)
    return np.ascontiguousarray(found.T)


def _found_by_the_first(rng: np.random.Generator, runs: int, servers: int, load: float) -> FloatArray:
    """When each server is free of what is there in steady state at time 0, float64 [runs, servers]."""
    shares = number_shares(servers, load)
    there = rng.choice(len(shares), runs, p=shares)
    busy = np.minimum(there, servers)
    free = np.zeros((runs, servers))
    free[np.arange(servers) < busy[:, None]] = rng.standard_exponential(int(busy.sum()))
    for place in range(int((there - busy).max(initial=0))):
        (waiting,) = np.nonzero(there - busy > place)
        free[waiting, free[waiting].argmin(axis=1)] += rng.standard_exponential(len(waiting))
    return free


@cache
def many_servers_limit(share: float, servers: int, load: float) -> float:
    """The response time that `share` of the attempts of M/M/c stay within: wait and service are independent."""
    from scipy.optimize import brentq

    waits = float(number_shares(servers, load)[servers:].sum())
    rate = servers * (1.0 - load)  # of the wait, where there is one

    def tail(x: float) -> float:
        both = (rate * math.exp(-x) - math.exp(-rate * x)) / (rate - 1.0) if rate != 1.0 else math.exp(-x) * (1.0 + x)
        return (1.0 - waits) * math.exp(-x) + waits * both

    return float(brentq(lambda x: tail(x) - (1.0 - share), 0.0, 1e4, xtol=1e-12))
