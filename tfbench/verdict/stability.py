"""Stability: did the backlog grow while the load was offered?"""

from typing import Any

from tfbench.metrics import in_flight_spans
from tfbench.stats.slope import backlog_slope
from tfbench.verdict.validity import Verdict

STABLE = "stable"
UNSTABLE = "unstable"
UNDECIDED = "undecided"


def judge_stability(con: Any, run_id: str) -> Verdict:
    """Unstable when attempts in flight grow by more than one over the run's window, at the slope's lower bound.

    One attempt is what a window's ends can differ by in any quiet system. `con` is a warehouse's connection. An
    attempt is in flight from its scheduled time, so that a queue on the client's side (capped load) is backlog too. The
    window is looked at while attempts arrive.
    """
    spans = in_flight_spans(con, run_id)
    if spans is None:
        return Verdict("stability", UNDECIDED, ("the run has no window",))
    # A run by count measures until its last answer; once nothing arrives any more, every backlog shrinks.
    last_ns = int(spans.start_ns.max(initial=spans.window_start_ns))
    end_ns = min(spans.window_end_ns, last_ns) if last_ns > spans.window_start_ns else spans.window_end_ns
    slope = backlog_slope(spans.start_ns, spans.end_ns, spans.window_start_ns, end_ns)
    if slope.value is None or slope.lo is None or slope.hi is None:
        return Verdict("stability", UNDECIDED, (slope.reason or "no slope",))
    says = f"attempts in flight change by {slope.value:.3g} per second [{slope.lo:.3g}, {slope.hi:.3g}]"
    if slope.lo * (end_ns - spans.window_start_ns) / 1e9 > 1.0:
        return Verdict("stability", UNSTABLE, (f"the backlog grows: {says}",))
    return Verdict("stability", STABLE, (says,))
