"""Gathers everything a report needs from a warehouse, once, into a frozen `ReportData`."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from tfbench.core.errors import UsageError
from tfbench.metrics import FIGURES, counts, figures, outcomes, run_figures
from tfbench.metrics.cache import CACHED_SHARE
from tfbench.metrics.client_error import client_moves
from tfbench.metrics.courses import Course, courses
from tfbench.metrics.facts import Facts, study_facts
from tfbench.metrics.soundness import Moves, is_sound, spoiled_words
from tfbench.report.cdf import study_cdfs
from tfbench.report.judged import apply_verdicts, apply_warm_ups, chosen_runs, withheld_at
from tfbench.report.model import Cdf, Definition, ReportData, Run, Study
from tfbench.report.records import (
    Record,
    capacity_of,
    counts_of,
    definition_of,
    errors_of,
    figures_of,
    load_point,
    outcomes_of,
    run_figures_of,
    runs_of,
    study_of,
    warm_ups_of,
)
from tfbench.warehouse import Warehouse

ERRORS = 40
"""At most so many different error texts are listed."""

SYSTEM_QUANTILES = frozenset(
    name for name, f in FIGURES.items() if f.p is not None and not name.startswith("client_lag")
)
"""The quantiles an unstable system makes meaningless; client lag is ours, and stands."""

LEAKED = SYSTEM_QUANTILES | {"good_fraction", "ok_fraction"}
"""The figures that a leaking warm-up bends: those of attempts scheduled in the window, all of one weight."""

_VERDICTS = """
SELECT v.* FROM verdicts v JOIN runs USING (run_id) WHERE study_id = ? ORDER BY ruleset
"""

_ERRORS = f"""
SELECT load_value, arm, outcome, http_status, error, count(*) AS n
FROM attempts JOIN (SELECT run_id, load_value, arm FROM runs WHERE study_id = ?) USING (run_id)
WHERE role = 'load' AND phase = 'measure' AND outcome <> 'ok'
GROUP BY ALL ORDER BY n DESC, load_value, arm, outcome, http_status, error LIMIT {ERRORS}
"""


def build_report(warehouse: Warehouse, study_id: str) -> ReportData:
    """Everything about one study. Raises UsageError when the warehouse has no such study."""
    con = warehouse.con

    def rows(query: str) -> list[dict[str, Any]]:
        return _records(con.execute(query, [study_id]).df())

    studies = rows("SELECT * FROM studies WHERE study_id = ?")
    if not studies:
        raise UsageError(f'no study "{study_id}" in {warehouse.path}; see `tfbench sql "select study_id from studies"`')
    runs = rows(f"SELECT *, {CACHED_SHARE} AS cached_share FROM runs r WHERE study_id = ?")
    verdicts = rows(_VERDICTS)
    held = runs_of(runs, verdicts)
    chosen = [run.run_id for run in chosen_runs(held)]
    kept = set(chosen)
    moves = client_moves(con, chosen)
    spoiled = {key for key, moved in moves.items() if not is_sound(FIGURES[key[1]], moved)}
    with study_facts(con, study_id, chosen) as facts:
        cdfs = study_cdfs(facts, {(run_id, name.split("_p")[0]) for run_id, name in spoiled})
        found = courses(facts, _unsteady(facts, study_of(studies[0]), held))
    return assemble(
        study=studies[0],
        runs=runs,
        verdicts=verdicts,
        figures=_records(figures(con, study_id, run_ids=chosen, moves=moves)),
        run_figures=[
            _unless_spoiled(row, moves)
            for row in _records(run_figures(con, study_id))
            # An INVALID run's lag is told: it is why the run is INVALID.
            if row["run_id"] in kept or str(row["figure"]).startswith("client_lag")
        ],
        outcomes=_records(outcomes(con, study_id)),
        errors=rows(_ERRORS),
        cdfs=cdfs,
        courses=found,
        counts=[row for row in _records(counts(con, study_id)) if row["run_id"] in kept],
        definitions=[
            definition_of(f.name, f.unit, f.direction, f.words, f.source, f.aliases) for f in FIGURES.values()
        ],
    )


def _unless_spoiled(row: Record, moves: Moves) -> Record:
    """A run's figure, without its value where a slow client spoiled it."""
    figure, moved = FIGURES[row["figure"]], moves.get((row["run_id"], row["figure"]))
    if moved is None or is_sound(figure, moved):
        return row
    return {**row, "value": None, "reason": f"withheld: {spoiled_words([moved], 1)}"}


def _unsteady(facts: Facts, study: Study, runs: Sequence[Run]) -> dict[tuple[float | None, str | None], str]:
    """The load points whose windows have a course of their own, so that their start tells nothing of a warm-up."""
    load = study.section("load")
    moved = "load.ramp moves the rate over the window" if load.get("ramp") else None
    if load.get("process") == "replay":
        moved = "recorded arrivals have a course of their own"
    out = {}
    for one in facts.runs:
        at = load_point({"load_value": one.load_value, "arm": one.arm})
        once = "all requests come at once" if math.isinf(at.value) else None
        unstable = (
            "unstable: what waits grows over the window" if withheld_at([r for r in runs if r.load == at]) else None
        )
        if reason := moved or once or unstable:
            out[one.point] = reason
    return out


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def assemble(
    *,
    study: Record,
    runs: Iterable[Record],
    verdicts: Iterable[Record],
    figures: Iterable[Record],
    run_figures: Iterable[Record] = (),
    outcomes: Iterable[Record] = (),
    errors: Iterable[Record] = (),
    cdfs: Sequence[Cdf] = (),
    counts: Iterable[Record] = (),
    definitions: Sequence[Definition] = (),
    courses: Sequence[Course] = (),
) -> ReportData:
    """A report's data from rows as the warehouse and the metrics frames give them (`frame.to_dict("records")`)."""
    verdicts = list(verdicts)
    held = runs_of(runs, verdicts)
    of_study = study_of(study)
    warm_ups = warm_ups_of(courses, float(of_study.section("load").get("warmup_s") or 0.0))
    leaks = [one for one in warm_ups if one.detected]
    return ReportData(
        study=of_study,
        runs=held,
        figures=apply_warm_ups(apply_verdicts(figures_of(figures), held, SYSTEM_QUANTILES), leaks, LEAKED),
        run_figures=run_figures_of(run_figures),
        outcomes=outcomes_of(outcomes),
        errors=errors_of(errors),
        cdfs=tuple(cdfs),
        counts=counts_of(counts),
        definitions=tuple(definitions),
        capacity=capacity_of(verdicts),
        warm_ups=warm_ups,
    )
