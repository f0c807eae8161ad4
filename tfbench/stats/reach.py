"""How near a search can come to the limit with runs of a given length: a rough figure, said before any load is sent.

The share of good requests over k runs of n scatters by sqrt(target (1 - target) TAU / (n k)); near the limit it falls
by STEEP (1 - target) with each e-fold of load. Both ends lie SURE such errors off the limit, so

    ln(hi / lo) = 2 SURE sqrt(TAU target / ((1 - target) n k)) / STEEP

TAU and STEEP are those of an M/M/1 queue whose limit lies near load 0.7. Servers whose runs differ (restarts, outages)
or whose requests fall into heavy-tailed queues come less near; `benchmarks/capacity_search.py` prints both.
"""

import math
from dataclasses import dataclass

TAU = 25.0
STEEP = 6.0
SURE = 2.9
# Runs a search takes to get a limit between two loads, both sure, and to halve what lies between.
BEFORE = 16
HALVING = 14.0
# Of the runs beyond those, one in so many weighs on an end.
SHARED = 4.0
# Loads tried lie apart, so the ends come within a resolution only where they could come so much nearer.
ROOM = 0.75


@dataclass(frozen=True, slots=True)
class Reach:
    """What runs of `requests` can be expected to show.

    Args:
        width: the lowest load not met is about so many times the highest met.
        longer: runs so many times as long, and enough of them, reach the resolution; 1 where these do.
    """

    requests: int
    width: float
    longer: float


def expected_reach(requests: int, target: float, *, max_runs: int, resolution: float, factor: float = 2.0) -> Reach:
    """How near `max_runs` runs of `requests` requests come to the load where the share of good ones is `target`."""
    if requests < 1 or not 0.0 < target < 1.0 or max_runs < 1:
        raise ValueError(f"need requests and max_runs of 1 or more and a target in (0, 1), not {requests}, {target}")
    beyond = max(0, max_runs - BEFORE)
    runs = max(3.0, beyond / SHARED)
    scatter = 2.0 * SURE * math.sqrt(TAU * target / ((1.0 - target) * requests * runs)) / STEEP
    steps = math.log(factor) * 2.0 ** (-beyond / HALVING)
    width = math.exp(max(scatter, steps, math.log(resolution)))
    return Reach(requests, width, longer_for(math.exp(scatter), resolution))


def longer_for(width: float, resolution: float) -> float:
    """How many times as long runs must be to bring ends that lie a factor of `width` apart within the resolution."""
    return max(1.0, (math.log(width) / (ROOM * math.log(resolution))) ** 2)
