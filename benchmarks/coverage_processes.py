"""The cells of the coverage study that are not queues in steady state: what real serving shows besides."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from benchmarks.processes import (
    Process,
    drift,
    failing,
    hits,
    independent,
    leaking,
    linked,
    lognormal,
    queue,
    stalls,
    ticks,
)

ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class Asked:
    """A figure of a process, "p95" or `ANSWERED` (the fraction that didn't fail), from n attempts a run.

    shown: whether two bounds are to be printed in nearly all studies. Not where few effective observations lie beyond
    the quantile, where nearly as many attempts fail as lie beyond, or where failures come in a burst or two.
    held: whether what is printed is to hold. No interval over repeats can cover what all repeats share (a warm-up that
    leaks), or hold where they follow one another; a test of its own tells those beside the figures.
    """

    process: Process
    figure: str
    n: int
    shown: bool = True
    held: bool = True


def _asked() -> Iterator[Asked]:
    yield Asked(hits(0.951), "p95", 420)
    yield Asked(hits(0.951), "p95", 1200)
    yield Asked(hits(0.951, stretch=20), "p95", 4000)
    yield Asked(hits(0.52), "p50", 61)
    yield Asked(hits(0.5), "p50", 1200)
    yield Asked(ticks(0.5), "p95", 3405)
    yield Asked(ticks(0.5), "p50", 1200)
    yield Asked(queue(0.6), "p95", 300, shown=False)
    yield Asked(queue(0.6), "p95", 1200)
    yield Asked(queue(0.6), "p99", 1200, shown=False)
    yield Asked(queue(0.3), "p99", 1200)
    yield Asked(independent(), "p99", 300)
    yield Asked(drift(0.6), "p50", 6000)
    yield Asked(drift(0.6), "p95", 6000, shown=False)
    for cv in (0.02, 0.05):
        yield Asked(lognormal(cv), "p50", 5000)
        yield Asked(queue(0.6, restart_cv=cv), "p95", 6044)
    yield Asked(stalls(0.6), "p99", 5000)
    yield Asked(failing(0.5, 0.008), "p99", 5067, shown=False)
    for burst in (20, 50):
        for n in (1200, 6000):
            yield Asked(failing(0.3, 0.005, burst), ANSWERED, n, shown=False)
    yield Asked(leaking(2.0, 0.05), "p50", 1200, held=False)
    for rho in (0.5, 0.8):
        yield Asked(linked(0.03, rho), "p50", 300, held=False)


@cache
def asked() -> dict[tuple[str, str, int], Asked]:
    """The cells by system, figure and n."""
    return {(one.process.name, one.figure, one.n): one for one in _asked()}
