"""The engine against queueing theory: 200,000 requests through the production scheduler for each law.

With `max_num_seqs` = c the scheduler is a queue with c servers, first come, first served. For c = 1 a service is one
step that computes a prompt, 1 µs a token, so that a law of prompt lengths is a law of service times, in whole µs
against a mean of 1 ms. For c > 1 a service is a reply of so many steps of 10 µs, a mean of 200 of them: a request
that comes while others are served waits for the step under way, 5 µs on average, a 30th of the half width of the
interval that its mean wait is held against.

Mean waits are held against their 99 % interval from batch means (Student's t over 20 batches of 10,000 successive
requests, after 2,000 that are passed over). Arrivals and services come from fixed seeds.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from tfbench.engine.config import EngineConfig
from tfbench.engine.step_time import StepTime
from tfbench.engine.virtual import VirtualEngine, serve

Floats = npt.NDArray[np.float64]
REQUESTS, SKIPPED, BATCHES = 202_000, 2_000, 20
LEVEL = 0.99
MEAN_TOKENS = 1_000
MEAN_STEPS = 200
STEP_NS = 10_000


def engine(servers: int, step_time: StepTime) -> EngineConfig:
    return EngineConfig(
        max_num_seqs=servers,
        max_num_batched_tokens=1_000_000,
        max_model_len=1_000_000,
        max_waiting=1_000_000,
        step_time=step_time,
    )


ONE_SERVER = engine(1, StepTime(base_ms=0.0, prefill_token_ms=0.001, decode_seq_ms=0.0))


def servers(c: int) -> EngineConfig:
    return engine(c, StepTime(base_ms=STEP_NS / 1e6, prefill_token_ms=0.0, decode_seq_ms=0.0))


def arrivals(generator: np.random.Generator, per_ns: float, n: int = REQUESTS) -> npt.NDArray[np.int64]:
    """Poisson arrivals, int64 ns."""
    return np.cumsum(np.rint(generator.standard_exponential(n) / per_ns).astype(np.int64))


def mean_and_half_width(waits: npt.NDArray[np.int64]) -> tuple[float, float]:
    means = waits[SKIPPED:].reshape(BATCHES, -1).mean(axis=1)
    t = float(stats.t.ppf((1 + LEVEL) / 2, BATCHES - 1))
    return float(means.mean()), t * float(means.std(ddof=1)) / math.sqrt(BATCHES)


def holds(waits: npt.NDArray[np.int64], expected: float) -> None:
    mean, half = mean_and_half_width(waits)
    assert abs(mean - expected) <= half, f"mean wait {mean:.4g} ± {half:.2g} ns, theory says {expected:.4g}"
    # The interval can tell: theory off by a tenth is refused.
    assert half < 0.1 * expected


def exponential(generator: np.random.Generator, n: int) -> Floats:
    return generator.standard_exponential(n)


def deterministic(_: np.random.Generator, n: int) -> Floats:
    return np.ones(n)


def hyperexponential(generator: np.random.Generator, n: int) -> Floats:
    """Nine of ten short, one long: means 0.5 and 5.5, E[S²] = 6.5."""
    return generator.standard_exponential(n) * np.where(generator.random(n) < 0.1, 5.5, 0.5)


def lognormal(generator: np.random.Generator, n: int) -> Floats:
    """Mean 1, coefficient of variation 1: E[S²] = 2, as the exponential's, and another third moment."""
    sigma = math.sqrt(math.log(2.0))
    return generator.lognormal(-sigma * sigma / 2, sigma, n)


@pytest.mark.parametrize(
    ("law", "second_moment", "load"),
    [
        pytest.param(exponential, 2.0, 0.7, id="M/M/1"),
        pytest.param(deterministic, 1.0, 0.8, id="M/D/1"),
        pytest.param(hyperexponential, 0.9 * 2 * 0.25 + 0.1 * 2 * 30.25, 0.5, id="M/H2/1"),
        pytest.param(lognormal, 2.0, 0.6, id="M/LN/1"),
    ],
)
def test_one_server_waits_as_pollaczek_and_khinchine_say(
    law: Callable[[np.random.Generator, int], Floats], second_moment: float, load: float
) -> None:
    """E[W] = λ·E[S²] / (2·(1 − ρ)); for M/M/1 that is ρ/(1 − ρ)·E[S], for M/D/1 half of it."""
    generator = np.random.default_rng(20)
    mean_ns = MEAN_TOKENS * 1_000
    at = arrivals(generator, load / mean_ns)
    tokens = np.maximum(np.rint(law(generator, REQUESTS) * MEAN_TOKENS), 1).astype(np.int64)
    served = serve(ONE_SERVER, at, tokens, np.ones_like(tokens))
    assert np.array_equal(served.end_ns - served.first_step_ns, tokens * 1_000)
    holds(served.first_step_ns - at, load / mean_ns * second_moment * mean_ns**2 / (2 * (1 - load)))


def erlang_c(c: int, offered: float) -> float:
    """The probability to wait in M/M/c, by the recursion of Erlang's B."""
    blocked = 1.0
    for k in range(1, c + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return blocked / (1 - offered / c * (1 - blocked))


def test_erlang_c_is_what_tables_say() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=1e-4)


@pytest.mark.parametrize(("c", "load"), [(4, 0.8)])
def test_several_servers_wait_as_erlang_says(c: int, load: float) -> None:
    """M/M/c: E[W] = C(c, λ·E[S]) · E[S] / (c·(1 − ρ))."""
    generator = np.random.default_rng(21)
    # Geometric on 1, 2, … is the exponential law's image on steps; its mean is exact.
    steps = generator.geometric(1 / MEAN_STEPS, REQUESTS).astype(np.int64)
    mean_ns = MEAN_STEPS * STEP_NS
    at = arrivals(generator, c * load / mean_ns)
    served = serve(servers(c), at, np.ones_like(steps), steps)
    assert np.array_equal(served.end_ns - served.first_step_ns, steps * STEP_NS)
    holds(served.first_step_ns - at, erlang_c(c, c * load) * mean_ns / (c * (1 - load)))


@pytest.mark.parametrize("options", [{}, {"batching": "static"}, {"kv_blocks": 40, "block_tokens": 16}], ids=str)
def test_littles_law_holds_to_the_nanosecond(options: dict[str, Any]) -> None:
    """∫ N dt over all time, N as the scheduler counts it at every event, is the sum of all times in the system."""
    generator = np.random.default_rng(22)
    config = EngineConfig(max_num_seqs=6, max_num_batched_tokens=64, step_time=StepTime(base_ms=2.0), **options)
    n = 3_000
    at = arrivals(generator, 40 / 1e9, n).tolist()
    prompts, replies = generator.integers(1, 120, n).tolist(), generator.integers(1, 60, n).tolist()
    virtual = VirtualEngine(config)
    area = now = in_system = 0
    sequences = []

    def pass_to(t: int) -> None:
        nonlocal area, now, in_system
        while (event := virtual.next_event_ns()) is not None and event <= t:
            virtual.run_until(event)
            area += in_system * (event - now)
            now, in_system = event, virtual.scheduler.running + virtual.scheduler.waiting
        virtual.run_until(t)
        area += in_system * (t - now)
        now = t

    for arrival, prompt, reply in zip(at, prompts, replies, strict=True):
        pass_to(arrival)
        sequences.append(virtual.submit(arrival, prompt, reply))
        in_system = virtual.scheduler.running + virtual.scheduler.waiting
    while (event := virtual.next_event_ns()) is not None:
        pass_to(event)
    ends = [seq.end_ns for seq in sequences if seq is not None and seq.end_ns is not None]
    assert len(ends) == n and in_system == 0
    assert area == sum(end - start for start, end in zip(at, ends, strict=True))
