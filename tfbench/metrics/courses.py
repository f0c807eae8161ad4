"""Does a warm-up leak into the window? Latencies in schedule order, pooled over the repeats of a load point."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tfbench.metrics.facts import Facts
from tfbench.metrics.samples import attempt_values
from tfbench.stats.warmup import Leak, find_leak, no_answer

_SERIES = {"TTFT": "ttft_or_inf_ms", "TPOT": "tpot_or_inf_ms", "E2E": "e2e_or_inf_ms"}


@dataclass(frozen=True)
class Course:
    """What the starts of a load point's windows show. leak_s: how long the leak lasts, in seconds; None without one."""

    load_value: float | None
    arm: str | None
    leak: Leak
    leak_s: float | None


def courses(facts: Facts, unasked: Mapping[tuple[float | None, str | None], str]) -> list[Course]:
    """Of each load point, over its complete runs. `unasked`: load points whose windows aren't steady by themselves,
    and why."""
    series = {
        name: attempt_values(
            facts, f"SELECT run_index, {column} AS value FROM attempt_facts WHERE counted AND {column} IS NOT NULL"
        )
        for name, column in _SERIES.items()
    }
    found = []
    for point in dict.fromkeys(run.point for run in facts.runs):
        runs = [run for run in facts.runs if run.point == point and run.status == "complete"]
        if not runs:
            continue
        if point in unasked:
            found.append(Course(*point, no_answer(unasked[point], k=len(runs)), None))
            continue
        leak = find_leak({name: [values[run.index] for run in runs] for name, values in series.items()})
        spans = [(span[1] - span[0]) / 1e9 for run in runs if (span := run.span(arrivals=True)) is not None]
        leak_s = leak.cut * float(np.mean(spans)) if leak.detected and leak.cut is not None and spans else None
        found.append(Course(*point, leak, leak_s))
    return found
