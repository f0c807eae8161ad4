"""From a manifest to its runs: load points × repeats, each with its own seed and salt."""

import hashlib
import math
from dataclasses import dataclass

from tfbench.core.jsonio import canonical_bytes
from tfbench.manifest.models import Manifest


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run to be made. `load_value` is a rate (may be inf) or a concurrency; `order_index` is its place in time.

    `seed` (63 bits, for the schedule) and `salt` (16 hex digits, for the prompts) depend on the manifest's seed, the
    load value and the repeat alone: equal across arms and systems, never shared between two runs of a study.
    """

    point_index: int
    load_value: float
    repeat: int
    order_index: int
    seed: int
    salt: str


def expand(manifest: Manifest) -> tuple[RunPlan, ...]:
    """All runs of one arm, in the order they are to be made.

    Repeats are the outer loop and every other one takes the points backwards, so that a slow drift of the system
    neither sits in one load point nor always favours the same one.
    """
    points = list(enumerate(manifest.load.points))
    plans: list[RunPlan] = []
    for repeat in range(manifest.load.repeats):
        for point_index, value in points if repeat % 2 == 0 else reversed(points):
            seed, salt = run_seed(manifest.load.seed, value, repeat)
            plans.append(RunPlan(point_index, value, repeat, len(plans), seed, salt))
    return tuple(plans)


def run_seed(seed: int, load_value: float, repeat: int) -> tuple[int, str]:
    """Seed and salt of a run: parts of sha256 over the RFC 8785 form of [domain, seed, load value, repeat]."""
    point = "inf" if math.isinf(load_value) else load_value
    digest = hashlib.sha256(canonical_bytes(["tfbench.run", seed, point, repeat])).digest()
    return int.from_bytes(digest[:8], "big") >> 1, digest[8:16].hex()
