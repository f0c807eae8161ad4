"""The highest load that meets a target: which load to probe next, when to repeat, and what the evidence says.

Pure decisions; `tfbench.study.capacity` makes the runs. A bracket [met, not met] narrows on evidence only:

- A load is decided by the one-sided bounds of a share: met when the lower one reaches the target, not met when the
  upper one falls short of it. Each is allowed (1 - confidence) / 2 over all looks at that load (Bonferroni).
  `tfbench.stats.loads` asks the loads beside it, too.
- One run can't know how runs differ, so it only scouts: what it says leads the way up and down, and decides nothing.
  A scouted end is made a decided one before the bracket narrows. Ends that have come close enough get fresh runs
  before the answer is "found": of many loads tried, close ends may be the lucky ones.
- A load that stays undecided gets more runs, up to its last look, or its neighbours are tried: whichever promises to
  narrow the bracket more per run. A load next to the limit takes many requests to decide, one a few per cent off few.
- Loads go up by `factor` from where the target was met, down from where it was not, past one undecided load at most,
  and only where its own value points that way: a system isn't overloaded further on no evidence.
- Where the evidence contradicts itself (met above not met) both ends are repeated; what still contradicts itself widens
  the answer.
- A load at which the client itself failed says nothing of the server: it ends the way up, and the answer stays open.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tfbench.stats.interval import Interval

Status = Literal["found", "wide", "open", "inconclusive"]
Limit = Literal["server", "client", "range"]

# How runs differ can't be told from fewer.
LEAST = 3
SCOUT = 1
LOOKS = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a search may do.

    Args:
        start: the first load probed (requests per second, or users).
        low, high: loads outside are never probed; low <= start <= high.
        whole: loads are whole numbers (users).
        factor: how far apart loads lie until both sides are known.
        resolution: done when the lowest load not met is at most this many times the highest met.
        looks: how many runs a load has when it is decided upon, the first time, the second time, …; at least 3. A load
            scouted with one run isn't decided upon.
        max_runs: all runs together.
        unfit_tries: a load is given up after so many runs in which the client failed.
        confidence: that the answer holds the limit.

    Raises:
        ValueError: a field out of its range.
    """

    start: float
    low: float
    high: float
    whole: bool = False
    factor: float = 2.0
    resolution: float = 1.1
    looks: tuple[int, ...] = LOOKS
    max_runs: int = 60
    unfit_tries: int = 2
    confidence: float = 0.9

    def __post_init__(self) -> None:
        if not (0.0 < self.low <= self.start <= self.high < math.inf):
            raise ValueError(f"need 0 < low <= start <= high, not {self.low}, {self.start}, {self.high}")
        if not (self.factor > 1.0 and self.resolution > 1.0 and 0.0 < self.confidence < 1.0):
            raise ValueError("factor and resolution must exceed 1, confidence lie between 0 and 1")
        if not self.looks or any(b <= a for a, b in zip((LEAST - 1, *self.looks), self.looks, strict=False)):
            raise ValueError(f"looks must ascend from {LEAST} or more, not {self.looks}")
        if self.max_runs < 1 or self.unfit_tries < 1:
            raise ValueError("max_runs and unfit_tries must be at least 1")

    @property
    def level(self) -> float:
        """The two-sided level of the interval of one look: each bound misses with (1 - confidence) / 2 / looks."""
        return 1.0 - (1.0 - self.confidence) / len(self.looks)

    def sure(self, one: "Evidence") -> bool:
        """Whether a load has been looked at twice: ends that lie close may do so by luck, which fresh runs end."""
        return one.runs >= self.looks[min(1, len(self.looks) - 1)]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one load.

    Args:
        runs, unfit: fit runs, and runs in which the client failed.
        met: the decision; None where it is open.
        leans: whether the sample's own value, sure or not, meets the target; None where there is none.
        scouted: what runs too few to decide upon would decide.
    """

    load: float
    runs: int
    unfit: int
    met: bool | None
    leans: bool | None = None
    scouted: bool | None = None

    @property
    def way(self) -> bool | None:
        """Where the search goes from here: by the decision or else by what was scouted."""
        return self.scouted if self.met is None else self.met


@dataclass(frozen=True, slots=True)
class Probe:
    """Make `runs` more runs at `load`, then decide on all of its runs together."""

    load: float
    runs: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the limit lies.

    Args:
        lo: the highest load decided to meet the target, below all that don't; None: none did. Where the search ended
            before any was decided, one that was scouted; `reason` then says so.
        hi: the lowest load decided not to meet it, above all that do; None: none was seen. Likewise.
        confidence: that [lo, hi] holds the limit, an open end reaching to 0 or without end.
        status: "found" (within the resolution, both ends looked at twice), "wide" (both ends, otherwise), "open" (one
            end), "inconclusive".
        limit: what ended the search on the way up: the server, the client, or the range asked for; None: none of them.
        reason: why it is not "found"; None when it is.
        runs: how many runs it took, the client's failures among them.
    """

    lo: float | None
    hi: float | None
    confidence: float
    status: Status
    limit: Limit | None
    reason: str | None
    runs: int


def next_probe(plan: SearchPlan, evidence: Sequence[Evidence]) -> Probe | Answer:
    """What to do after `evidence`: one entry per load probed, in any order.

    Deterministic, and it ends: every load has a last look, loads have a least distance, and runs a budget.
    """
    held = sorted(evidence, key=lambda one: one.load)
    left = plan.max_runs - sum(one.runs + one.unfit for one in held)
    wanted = _wanted(plan, held)
    if isinstance(wanted, str):
        return conclude(plan, held, wanted)
    if left <= 0:
        return conclude(plan, held, f"the budget of {plan.max_runs} runs is spent")
    return Probe(wanted.load, min(wanted.runs, left))


def conclude(plan: SearchPlan, evidence: Sequence[Evidence], why: str) -> Answer:
    """The answer that `evidence` gives when the search ends, `why` being what ended it (empty: nothing was missing)."""
    held = sorted(evidence, key=lambda one: one.load)
    lo, hi = _end(held, met=True), _end(held, met=False)
    reasons = [why] if why else []
    met, not_met = _loads(held, met=True), _loads(held, met=False)
    if met and not_met and max(met) > min(not_met):
        reasons.append(f"the target was met at {max(met):g} though not at {min(not_met):g}")
    close = lo is not None and hi is not None and _close(plan, lo, hi)
    thin = [one for one in held if one.load in (lo, hi) and (one.met is None or (close and not plan.sure(one)))]
    reasons += [f"what is said of {one.load:g} rests on {_runs(one.runs)}" for one in thin]
    client = _barrier(plan, held) is not None
    if client and hi is None:
        reasons.append("the client, not the server, set the limit")
    between = [one.load for one in held if one.way is None and (lo or 0.0) < one.load < (hi or math.inf)]
    if between and not close:
        reasons.append(f"undecided at {', '.join(f'{load:g}' for load in between)}")
    runs = sum(one.runs + one.unfit for one in held)
    if lo is not None and hi is not None:
        found = close and not thin
        status: Status = "found" if found else "wide"
        return Answer(lo, hi, plan.confidence, status, "server", None if found else "; ".join(reasons) or why, runs)
    status = "inconclusive" if lo is None and hi is None else "open"
    at_edge = (lo is not None and _same(lo, plan.high)) or (hi is not None and _same(hi, plan.low))
    limit: Limit | None = "client" if client and hi is None else "range" if at_edge else None
    return Answer(lo, hi, plan.confidence, status, limit, "; ".join(reasons) or "no run was fit to judge", runs)


def decide(share: Interval, target: float, *, unstable: int = 0) -> bool | None:
    """Whether a load meets its target: True, False, or None where the bounds of `share` can't tell.

    Args:
        unstable: how many of its `share.k` runs had a growing backlog. When most had, the target isn't met however good
            the share, which falls with the length of the run. A lone one may be chance: then the share itself must miss
            the target too.
    """
    if 2 * unstable > share.k and (unstable >= 2 or leans(share, target) is False):
        return False
    if share.hi is not None and share.hi < target:
        return False
    met = share.lo is not None and share.lo >= target and 2 * unstable < share.k
    return True if met else None


def leans(share: Interval, target: float) -> bool | None:
    """Whether the sample's own share meets the target; None without one."""
    return None if share.value is None else share.value >= target


def needed_requests(target: float, level: float) -> int:
    """Independent requests, every one good, whose lower bound at two-sided `level` reaches a share of `target`.

    n >= ln((1 - level) / 2) / ln(target). Fewer can never decide that the target is met.
    """
    if not 0.0 < target < 1.0:
        raise ValueError(f"target must lie strictly between 0 and 1, not {target}")
    return max(1, math.ceil(math.log((1.0 - level) / 2) / math.log(target) - 1e-9))


def _end(held: Sequence[Evidence], *, met: bool) -> float | None:
    """The end of the answer on the side where the target is met, or where it isn't.

    A decided load; where there is none a scouted one, which must not lie beyond anything that says otherwise.
    """
    sign = 1.0 if met else -1.0
    for scouts in (False, True):
        against = [sign * one.load for one in held if (one.way if scouts else one.met) is (not met)]
        ends = [sign * one.load for one in held if (one.way if scouts else one.met) is met]
        inside = [end for end in ends if not against or end < min(against)]
        if inside:
            return abs(max(inside))
    return None


def _loads(held: Sequence[Evidence], *, met: bool) -> list[float]:
    return [one.load for one in held if one.met is met]


def _wanted(plan: SearchPlan, held: Sequence[Evidence]) -> Probe | str:
    """The probe to make if the budget allows, or why there is none."""
    wanted = _narrowing(plan, held)
    if isinstance(wanted, str):
        ends = (_end(held, met=True), _end(held, met=False))
        scouts = [one for one in held if one.load in ends and one.met is None and _repeatable(plan, one)]
        if scouts:
            return _repeat(plan, scouts[0])
    return wanted


def _narrowing(plan: SearchPlan, held: Sequence[Evidence]) -> Probe | str:
    """The probe that would narrow the bracket, or why there is none."""
    if not held:
        return Probe(plan.start, SCOUT)
    met = [one for one in held if one.way is True]
    not_met = [one for one in held if one.way is False]
    if met and not_met and met[-1].load > not_met[0].load:
        ends = [one for one in (not_met[0], met[-1]) if _repeatable(plan, one)]
        if ends:
            return _repeat(plan, min(ends, key=lambda one: one.runs))
        return "the evidence contradicts itself"
    lo, hi = met[-1].load if met else None, not_met[0].load if not_met else None
    barrier = _barrier(plan, held)
    if hi is None and barrier is not None:
        hi = barrier
    between = [one for one in held if (lo or 0.0) < one.load < (hi or math.inf) and one.way is None]
    reason = ""
    # Where nothing is known yet, the way the first load leans is the shorter one.
    for up in (False, True) if held[0].leans is False else (True, False):
        if (hi if up else lo) is None:
            step = _further(plan, held[-1] if up else held[0], between, up=up)
            if isinstance(step, Probe):
                return step
            reason = reason or step
    if lo is not None and hi is not None:
        close = _close(plan, lo, hi)
        ends = [one for one in held if one.load in (lo, hi) and (one.met is None or (close and not plan.sure(one)))]
        again = min(filter(lambda one: _repeatable(plan, one), ends), key=lambda one: one.runs, default=None)
        if again is not None:
            return _repeat(plan, again)
        return "" if close else _narrower(plan, lo, hi, between)
    # One end stays open; the other may still move up to what is undecided.
    if between and (lo is not None or hi is not None):
        low, high = lo or between[-1].load, hi or between[0].load
        step = "" if _close(plan, low, high) else _narrower(plan, low, high, ())
        if isinstance(step, Probe):
            return step
    return reason


def _further(plan: SearchPlan, end: Evidence, between: Sequence[Evidence], *, up: bool) -> Probe | str:
    """One step up (or down) from the outermost load, unless what is undecided on the way must be repeated first."""
    edge = plan.high if up else plan.low
    at_edge = _same(end.load, edge)
    beyond = [one for one in between if (one.load > plan.start if up else one.load < plan.start)]
    stuck = at_edge or len(beyond) > 1
    for one in sorted(between, key=lambda one: one.runs):
        if _repeatable(plan, one) and (stuck or len(between) > 1 or one.leans is not up):
            return _repeat(plan, one)
    if stuck and end.way is None:
        return f"undecided at the {'highest' if up else 'lowest'} load tried, {end.load:g}"
    if stuck:
        words = "met up to the highest load tried" if up else "not met even at the lowest load tried"
        return f"{words}, {end.load:g}"
    step = end.load * plan.factor if up else end.load / plan.factor
    if plan.whole:
        step = max(math.floor(step), end.load + 1) if up else min(math.ceil(step), end.load - 1)
    else:
        step = _round(step)
    return Probe(min(step, plan.high) if up else max(step, plan.low), SCOUT)


def _narrower(plan: SearchPlan, lo: float, hi: float, between: Sequence[Evidence]) -> Probe | str:
    """The probe that would narrow the bracket most per run, were it decided.

    A new load in the middle of the gap beside lo or hi would narrow it by half of that gap, for the runs of a first
    look; the undecided load at the gap's other end by all of it, for the runs to its next look.
    """
    loads = [lo, *(one.load for one in between), hi]
    options: list[tuple[float, Probe]] = []
    for low, high, beside in ((loads[0], loads[1], between[:1]), (loads[-2], loads[-1], between[-1:])):
        gap = math.log(high / low)
        middle = _middle(plan, low, high)
        if middle is not None and (not between or gap > math.log(plan.resolution) / 2):
            options.append((gap / 2 / plan.looks[0], Probe(middle, plan.looks[0])))
        options += [
            (gap / repeat.runs, repeat) for one in beside if _repeatable(plan, one) and (repeat := _repeat(plan, one))
        ]
    if options:
        return max(options, key=lambda option: option[0])[1]
    return "what lies between is too near the target for the runs a load may have" if between else ""


def _middle(plan: SearchPlan, low: float, high: float) -> float | None:
    """The geometric middle, or None where there is no load between."""
    middle = math.sqrt(low * high)
    middle = float(round(middle)) if plan.whole else _round(middle)
    return middle if low < middle < high else None


def _barrier(plan: SearchPlan, held: Sequence[Evidence]) -> float | None:
    """The lowest load that the client couldn't offer, above every load where the target was met."""
    met = max((one.load for one in held if one.way is True), default=0.0)
    unfit = (one.load for one in held if one.way is None and one.unfit >= plan.unfit_tries and one.load > met)
    return min(unfit, default=None)


def _repeatable(plan: SearchPlan, one: Evidence) -> bool:
    return one.runs < plan.looks[-1] and one.unfit < plan.unfit_tries


def _repeat(plan: SearchPlan, one: Evidence) -> Probe:
    return Probe(one.load, next(look for look in plan.looks if look > one.runs) - one.runs)


def _runs(n: int) -> str:
    return f"{n} run" if n == 1 else f"{n} runs"


def _close(plan: SearchPlan, lo: float, hi: float) -> bool:
    return hi <= lo * plan.resolution * (1.0 + 1e-9) or (plan.whole and hi - lo <= 1)


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9)


def _round(load: float) -> float:
    """Four significant digits: what a person can type again."""
    return float(f"{load:.4g}")
