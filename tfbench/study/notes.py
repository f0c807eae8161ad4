"""What a study's sample size can carry, said before anything is sent."""

import math
from collections.abc import Sequence
from pathlib import Path

from tfbench.manifest import Manifest, RunPlan
from tfbench.stats.sample_size import carried_quantiles

_SHOWN = (0.5, 0.95, 0.99)


def warehouse_notes(path: Path) -> tuple[str, ...]:
    """Says that the warehouse at `path` is still to be made, so that a mistyped name is seen."""
    return () if path.exists() else (f"new warehouse {path}",)


def _name(p: float) -> str:
    return f"P{p * 100:g}"


def expected_attempts(manifest: Manifest, load_value: float) -> int | None:
    """Attempts a run of this load point is expected to measure; None where the system or a trace decides."""
    load = manifest.load
    if load.count is not None:
        return load.count
    if load.rates is None or load.duration_s is None or math.isinf(load_value) or load.process == "replay":
        return None
    rate = load_value if load.ramp is None else load.ramp.mean_rate(load_value)
    return int(rate * load.duration_s)


def sample_size_notes(manifest: Manifest, plans: Sequence[RunPlan]) -> tuple[str, ...]:
    """One line per load point that can't carry every shown quantile, with what would; requests that don't depend on
    each other, the best case."""
    notes = []
    repeats = manifest.load.repeats
    for value in sorted({plan.load_value for plan in plans}):
        n = expected_attempts(manifest, value)
        if n is None:
            continue
        short = [one for one in carried_quantiles(n, _SHOWN, repeats=repeats) if not one.settled]
        if not short:
            continue
        needs = []
        for one in short:
            if manifest.load.count is None:
                needs.append(f"{_name(one.p)} takes load.duration_s = {math.ceil(one.n_settled / value)}")
            else:
                needs.append(f"{_name(one.p)} takes load.count = {one.n_settled}")
        names = ", ".join(_name(one.p) for one in short)
        runs, are = (f"{repeats} runs", "are") if repeats > 1 else ("a run", "is")
        more = ", or 5 repeats" if repeats < 3 else ""
        notes.append(
            f"load {value:g}: {runs} of about {n} requests {are} too short for both bounds of"
            f" {names} ({', '.join(needs)}{more}; more where requests queue)"
        )
    return tuple(notes)
