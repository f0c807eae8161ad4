"""From a manifest to its runs: load points × repeats, each with its own seed and salt."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.core.jsonio import canonical_bytes
from tfbench.manifest.models import Manifest


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run to be made. `load_value` is a rate (may be inf) or a concurrency; `order_index` is its place in time.

    `seed` (63 bits, for the schedule) and `salt` (16 hex digits, for the prompts) depend on the manifest's seed, the
    load value and the repeat alone: equal across arms and systems, never shared between two runs of an arm. `arm`
    names what is compared, None where there is one; runs of one `pair` follow each other.
    """

    point_index: int
    load_value: float
    repeat: int
    order_index: int
    seed: int
    salt: str
    arm: str | None = None
    pair: int | None = None


def expand(manifest: Manifest, repeats: int | None = None) -> tuple[RunPlan, ...]:
    """All runs of one arm, in the order they are to be made; `repeats`: other than the manifest's number of them.

    Repeats are the outer loop. Each even one takes the points in an order drawn from the seed, so that nothing which
    recurs keeps step with the load; the next takes them backwards, so that over the two a steady drift of the system
    weighs on every point alike. More repeats don't change the order of the first ones.
    """
    seed = manifest.load.seed
    plans: list[RunPlan] = []
    for repeat in range(manifest.load.repeats if repeats is None else repeats):
        order = _order(seed, manifest.load.points, repeat // 2)
        for point_index, value in order if repeat % 2 == 0 else reversed(order):
            plans.append(RunPlan(point_index, value, repeat, len(plans), *run_seed(seed, value, repeat)))
    return tuple(plans)


def _order(seed: int, points: Sequence[float], turn: int) -> list[tuple[int, float]]:
    """The points with their indices, by the sha256 of [domain, seed, load value, turn]: every order is as likely."""
    return sorted(enumerate(points), key=lambda point: _digest("tfbench.order", seed, point[1], turn))


def run_seed(seed: int, load_value: float, repeat: int) -> tuple[int, str]:
    """Seed and salt of a run: parts of sha256 over the RFC 8785 form of [domain, seed, load value, repeat]."""
    digest = _digest("tfbench.run", seed, load_value, repeat)
    return int.from_bytes(digest[:8], "big") >> 1, digest[8:16].hex()


def _digest(domain: str, seed: int, load_value: float, number: int) -> bytes:
    point = "inf" if math.isinf(load_value) else load_value
    return hashlib.sha256(canonical_bytes([domain, seed, point, number])).digest()
