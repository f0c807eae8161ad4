"""Closed-loop plans: when each user starts, and how long it thinks after each answer."""

import hashlib
from dataclasses import dataclass

from tfbench.core.jsonio import canonical_bytes
from tfbench.manifest.dists import Dist
from tfbench.manifest.limits import MAX_RUN_S
from tfbench.manifest.quantiles import Sampler, sampler

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ClosedPlan:
    """What of a closed loop is fixed before it runs. All times in ns; picklable.

    Each of `users` sends its first request at `start_offset_ns(user)` from the run's start, and the next one
    `think_ns(user, turn)` after the end of request `turn` (from 0). The window is [measure_start_ns, measure_end_ns);
    with `count` it opens with the first request after the warm-up, ends with the last answer (`measure_end_ns` None),
    and `count` requests are measured. `stop_ns` is when the drain ends at the latest (None with a count).
    """

    users: int
    seed: int
    stagger_ns: int
    think: Sampler
    measure_start_ns: int
    measure_end_ns: int | None
    stop_ns: int | None
    count: int | None
    sha256: str

    def start_offset_ns(self, user: int) -> int:
        """When `user` (from 0) sends its first request, from the run's start."""
        return self.stagger_ns * user // self.users

    def think_ns(self, user: int, turn: int) -> int:
        """How long `user` waits after the end of its request number `turn`; a function of seed, user and turn alone."""
        if self.think.kind == "number":
            return round(self.think.a * _NS)
        key = b"%d/%d/%d" % (self.seed, user, turn)
        bits = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 11
        return round(self.think.at((bits + 0.5) / 2**53) * _NS)


def closed_plan(
    users: int,
    seed: int,
    *,
    think_s: float | Dist,
    warmup_s: float,
    duration_s: float | None,
    drain_s: float,
    count: int | None,
) -> ClosedPlan:
    """The plan of `users` users. Their starts are spread evenly over the first half of the warm-up.

    So they neither prefill in one wave nor are still joining when the window opens; without a warm-up they start at
    once. `sha256` is over every number that makes the plan. ValueError for arguments no manifest allows.
    """
    if users < 1 or (duration_s is None) == (count is None):
        raise ValueError("a closed loop needs users, and exactly one of duration_s and count")
    warmup_ns = round(warmup_s * _NS)
    end_ns = None if duration_s is None else warmup_ns + round(duration_s * _NS)
    stop_ns = None if end_ns is None else end_ns + round(drain_s * _NS)
    think = think_s if isinstance(think_s, float | int) else think_s.model_dump(mode="json")
    identity = ["tfbench.closed", users, seed >> 32, seed & 0xFFFFFFFF, think, warmup_ns, end_ns, stop_ns, count]
    return ClosedPlan(
        users=users,
        seed=seed,
        stagger_ns=warmup_ns // 2,
        think=sampler(think_s, 0.0, MAX_RUN_S),
        measure_start_ns=warmup_ns,
        measure_end_ns=end_ns,
        stop_ns=stop_ns,
        count=count,
        sha256=hashlib.sha256(canonical_bytes(identity)).hexdigest(),
    )
