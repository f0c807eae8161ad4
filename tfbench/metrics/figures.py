"""Every figure of a study, by load point and arm with its interval, and by run."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from tfbench.metrics.definitions import FIGURES, FigureDef
from tfbench.metrics.facts import Facts, RunWindow, study_facts
from tfbench.metrics.samples import Events, attempt_flags, attempt_gaps, attempt_values, ended
from tfbench.metrics.soundness import Moves, is_sound, spoiled_words, widened
from tfbench.stats.combine import combine_fraction, combine_quantile, combine_ratio, pooled, pooled_chunks
from tfbench.stats.interval import Interval
from tfbench.stats.pool import Pool
from tfbench.stats.quantile import sample_quantile
from tfbench.stats.ratio import RatioRun

_SECONDS_PER_HOUR = 3600
_PER_MILLION = 1e6
_NO_RESOURCES = "no [cost] resources in the manifest"
_FREE = "the [cost] resources cost nothing"
NO_WINDOW = "the run has no window"
AT_ONCE = "all requests arrive at once: no time lies between arrivals, and the rate over the window is the system's own"
_NO_RUN = "no complete run"
DRAIN_TOLD = 0.05
"""The share of a rate's window from which drain is told."""
READERS: Mapping[str, Callable[[Facts, str], Sequence[Any]]] = {
    "quantile": attempt_values,
    "chunk_quantile": attempt_gaps,
    "fraction": attempt_flags,
    "rate": ended,
    "cost": ended,
}
_FIGURE_COLUMNS = (
    *("load_value", "arm", "figure", "unit", "direction", "value", "lo", "hi", "level"),
    *("method", "n", "n_eff", "k", "settled", "reason"),
)
_RUN_COLUMNS = (
    *("run_id", "load_value", "arm", "repeat", "order_index", "status"),
    *("figure", "unit", "direction", "value", "n", "reason"),
)
_FAILED = "of the attempts failed"
_NULLABLE = frozenset({"arm", "direction", "value", "lo", "hi", "n_eff", "reason", "order_index"})

Drawn = Mapping[str, Sequence[Any]]
"""What each SQL text gave, one entry a run: float arrays, `Clusters`, `Flags` or `Events`, by the figure's kind."""


def figures(
    con: duckdb.DuckDBPyConnection,
    study_id: str,
    *,
    run_ids: Sequence[str] | None = None,
    moves: Moves | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """One row per load point × arm × figure, over the complete runs of a study.

    Columns: load_value, arm, figure, unit, direction, value, lo, hi, level, method, n, n_eff, k, settled, reason. An
    unknown value or bound is None, never NaN, infinite or 0; `reason` says why. `load_value` is +inf for all at once.
    `run_ids` keeps only the runs it names (say, those judged valid). `moves` (see `client_moves`): a figure is taken of
    the runs in which the client moved it little, with so much wider bounds. Raises UsageError for no such study.
    """
    rows = []
    with study_facts(con, study_id, run_ids) as facts:
        drawn = draw(facts, FIGURES.values())
        for point in dict.fromkeys(run.point for run in facts.runs):
            runs = [run for run in facts.runs if run.point == point and run.status == "complete"]
            pools: dict[tuple[str, ...], Pool] = {}
            for figure in FIGURES.values():
                interval = _sound_interval(figure, facts, drawn, runs, pools, moves or {}, level)
                head = {"load_value": point[0], "arm": point[1], **_head(figure, facts)}
                rows.append(head | dataclasses.asdict(interval))
    return _frame(rows, _FIGURE_COLUMNS)


def run_figures(con: duckdb.DuckDBPyConnection, study_id: str) -> pd.DataFrame:
    """One row per run × figure, of every run whatever its status.

    Columns: run_id, load_value, arm, repeat, order_index, status, figure, unit, direction, value, n, reason. An unknown
    or infinite value is None with a reason. Raises UsageError for no such study.
    """
    rows = []
    with study_facts(con, study_id) as facts:
        drawn = draw(facts, FIGURES.values())
        for run in facts.runs:
            head = {name: getattr(run, name) for name in _RUN_COLUMNS[:6]}
            for figure in FIGURES.values():
                value, n, reason = run_value(figure, facts, drawn, run)
                rows.append(head | _head(figure, facts) | {"value": value, "n": n, "reason": reason})
    return _frame(rows, _RUN_COLUMNS)


def draw(facts: Facts, wanted: Collection[FigureDef]) -> Drawn:
    """The facts behind these figures."""
    queries = {figure.sql: READERS[figure.kind] for figure in wanted}
    queries |= {figure.size_sql: ended for figure in wanted if figure.size_sql is not None}
    if any(run.drain_s for run in facts.runs):
        queries |= {figure.arrived_sql: ended for figure in wanted if figure.arrived_sql is not None}
    return {sql: reader(facts, sql) for sql, reader in queries.items()}


def _head(figure: FigureDef, facts: Facts) -> dict[str, Any]:
    unit = figure.unit.replace("currency", facts.currency)
    return {"figure": figure.name, "unit": unit, "direction": figure.direction}


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    # Object columns, because a float column would turn None into NaN.
    return pd.DataFrame(
        {
            name: pd.Series([row[name] for row in rows], dtype=object if name in _NULLABLE or not rows else None)
            for name in columns
        }
    )


def _sound_interval(
    figure: FigureDef,
    facts: Facts,
    drawn: Drawn,
    runs: Sequence[RunWindow],
    pools: dict[tuple[str, ...], Pool],
    moves: Moves,
    level: float,
) -> Interval:
    """Of the runs in which the client moved the figure little; withheld where there is none."""
    moved = {run.run_id: moves.get((run.run_id, figure.name)) for run in runs}
    sound = [run for run in runs if is_sound(figure, moved[run.run_id])]
    spoiled = [one for run in runs if run not in sound and (one := moved[run.run_id]) is not None]
    if spoiled and not sound:
        return _nothing(f"withheld: {spoiled_words(spoiled, len(runs))}", level)
    interval = _interval(figure, facts, drawn, sound, pools, level)
    room = [one for run in sound if (one := moved[run.run_id]) is not None]
    interval = widened(interval, room, fraction=figure.kind == "fraction")
    if not spoiled:
        return interval
    left_out = f"{spoiled_words(spoiled, len(runs))}: left out of it"
    return dataclasses.replace(interval, reason="; ".join(filter(None, (interval.reason, left_out))))


def _interval(
    figure: FigureDef,
    facts: Facts,
    drawn: Drawn,
    runs: Sequence[RunWindow],
    pools: dict[tuple[str, ...], Pool],
    level: float,
) -> Interval:
    """`pools`: what quantiles were taken of so far, by SQL text and runs."""
    if not runs:
        return _nothing(_NO_RUN, level)
    samples = [drawn[figure.sql][run.index] for run in runs]
    if figure.kind in {"rate", "cost"}:
        return _ratio(figure, facts, drawn, runs, samples, level)
    if figure.kind == "fraction":
        interval = combine_fraction(
            [flags.value for flags in samples],
            score=[flags.score for flags in samples],
            seconds=watched_s(runs),
            level=level,
        )
    else:
        key = (figure.sql, *(run.run_id for run in runs))
        if key not in pools:
            pools[key] = (pooled_chunks if figure.kind == "chunk_quantile" else pooled)(samples)
        interval = combine_quantile(pools[key], quantile_of(figure), level=level)
        if interval.reason is not None and _FAILED in interval.reason:
            words = interval.reason.replace(_FAILED, _without_output(figure, facts, runs))
            interval = dataclasses.replace(interval, reason=words)
    return interval if interval.n else dataclasses.replace(interval, reason=figure.empty)


def _without_output(figure: FigureDef, facts: Facts, runs: Sequence[RunWindow]) -> str:
    """What became of the attempts whose value is +inf, in words: an ok one that showed no output hasn't failed."""
    if not figure.name.startswith("ttft"):
        return _FAILED
    [(ok, lost)] = facts.con.execute(
        "SELECT count(*) FILTER (ok), count(*) FROM attempt_facts"
        " WHERE counted AND isinf(ttft_or_inf_ms) AND list_contains(?, run_index)",
        [[run.index for run in runs]],
    ).fetchall()
    return _FAILED if not ok else "of the attempts showed no output" if ok == lost else f"{_FAILED} or showed no output"


def watched_s(runs: Sequence[RunWindow]) -> float:
    """Seconds of all the runs' windows together."""
    spans = (run.span(arrivals=False) for run in runs)
    return sum((span[1] - span[0]) / 1e9 for span in spans if span is not None)


def _ratio(
    figure: FigureDef,
    facts: Facts,
    drawn: Drawn,
    runs: Sequence[RunWindow],
    samples: Sequence[Events],
    level: float,
) -> Interval:
    unpriced = unpriced_reason(figure, facts)
    if unpriced is not None:
        return _nothing(unpriced, level)
    size = event_size(figure, drawn, runs)
    pairs = [
        ratio_run(figure, *span, events, size)
        for run, events in zip(runs, samples, strict=True)
        if (span := run.span(arrivals=figure.arrivals)) is not None
    ]
    if not pairs:
        return _nothing(no_span_reason(figure, runs), level)
    interval = combine_ratio(pairs, scale=scale_of(figure, facts), level=level)
    if (drain := _drain_words(figure, drawn, runs)) is not None:
        interval = dataclasses.replace(interval, reason="; ".join(filter(None, (interval.reason, drain))))
    unknown = sum(events.unknown for events in samples)
    if not unknown:
        return interval
    reason = f"tokens unknown for {unknown} of {unknown + interval.n} attempts: the known ones give a bound only"
    open_side: dict[str, Any] = {"lo": None} if figure.kind == "cost" else {"hi": None}
    return dataclasses.replace(interval, value=None, settled=False, reason=reason, **open_side)


def _drain_words(figure: FigureDef, drawn: Drawn, runs: Sequence[RunWindow]) -> str | None:
    """That a rate's window holds drain, and the rate between arrivals; None up to 5 %, and where all come at once."""
    if figure.arrived_sql is None:
        return None
    held = [(run, drain) for run in runs if (drain := run.drain_s) is not None]
    drain, window = sum(drain for _, drain in held), watched_s([run for run, _ in held])
    if drain <= DRAIN_TOLD * window:
        return None
    told = f"the window holds {_digits(drain / len(held))} s of drain{' a run' * (len(held) > 1)}"
    events = [drawn[figure.arrived_sql][run.index] for run, _ in held]
    if any(one.unknown for one in events):
        return f"{told} ({drain / window * 100:.0f} %)"
    spans = [span for run, _ in held if (span := run.span(arrivals=True)) is not None]
    rate = combine_ratio([_arrived(*span, one) for span, one in zip(spans, events, strict=True)]).value
    return (
        f"{told} ({drain / window * 100:.0f} %): between arrivals the rate was {_digits(rate or 0.0)} {figure.unit},"
        " the system's own if it kept up"
    )


def _digits(x: float) -> str:
    """Three significant digits, never an exponent."""
    x = float(f"{x:.3g}")
    return f"{x:,.{max(0, 2 - math.floor(math.log10(x)))}f}" if x > 0.0 else "0"


def no_span_reason(figure: FigureDef, runs: Sequence[RunWindow]) -> str:
    """Why there are no seconds to divide by."""
    return AT_ONCE if figure.arrivals and any(run.span(arrivals=False) for run in runs) else NO_WINDOW


def ratio_run(figure: FigureDef, start_ns: int, end_ns: int, events: Events, size: float | None) -> RatioRun:
    if figure.arrivals:
        return _arrived(start_ns, end_ns, events, size)
    num, den = (None, events.value) if figure.kind == "cost" else (events.value, None)
    return RatioRun(start_ns, end_ns, events.end_ns, num, den, size)


def _arrived(start_ns: int, end_ns: int, events: Events, size: float | None = 1.0) -> RatioRun:
    # A retry may be scheduled after the last arrival.
    return RatioRun(start_ns, end_ns, np.clip(events.end_ns, start_ns, end_ns), events.value, None, size)


def event_size(figure: FigureDef, drawn: Drawn, runs: Sequence[RunWindow]) -> float | None:
    if figure.size_sql is None:
        return 1.0
    values = np.concatenate([drawn[figure.size_sql][run.index].value for run in runs])
    return float(values.mean()) if values.size and values.any() else None


def unpriced_reason(figure: FigureDef, facts: Facts) -> str | None:
    """Why there is no price to divide; None where there is one, or the figure takes none."""
    if figure.kind != "cost":
        return None
    if facts.cost_per_hour is None:
        return _NO_RESOURCES
    scale = scale_of(figure, facts)
    if scale <= 0.0:
        return _FREE
    return None if math.isfinite(scale) else "the [cost] resources' price is beyond what a number can hold"


def scale_of(figure: FigureDef, facts: Facts) -> float:
    if figure.kind == "cost" and facts.cost_per_hour is not None:
        return facts.cost_per_hour / _SECONDS_PER_HOUR * _PER_MILLION
    return 1.0


def run_value(figure: FigureDef, facts: Facts, drawn: Drawn, run: RunWindow) -> tuple[float | None, int, str | None]:
    """A run's figure, of how many events it is, and why there is none or what to know of it."""
    sample = drawn[figure.sql][run.index]
    if figure.kind in {"rate", "cost"}:
        return _run_ratio(figure, facts, drawn, run, sample)
    if figure.kind == "fraction":
        n = int(sample.value.size)
        return (float(sample.value.mean()), n, None) if n else (None, 0, figure.empty)
    values = sample.values if figure.kind == "chunk_quantile" else sample
    n = int(values.size)
    if not n:
        return None, 0, figure.empty
    value = float(sample_quantile(values, quantile_of(figure)))
    if math.isfinite(value):
        return value, n, None
    lost = int(np.count_nonzero(np.isinf(values)))
    return None, n, f"{lost} of {n} never came: the quantile lies among them"


def _run_ratio(
    figure: FigureDef, facts: Facts, drawn: Drawn, run: RunWindow, events: Events
) -> tuple[float | None, int, str | None]:
    n = int(events.value.size)
    unpriced = unpriced_reason(figure, facts)
    if unpriced is not None:
        return None, n, unpriced
    if (span := run.span(arrivals=figure.arrivals)) is None:
        return None, n, no_span_reason(figure, [run])
    if events.unknown:
        return None, n, f"tokens unknown for {events.unknown} of {events.unknown + n} attempts"
    window_s, amount = (span[1] - span[0]) / 1e9, float(events.value.sum())
    if figure.kind == "rate":
        empty = None if amount > 0 else "nothing counted in the window"
        return amount / window_s, n, "; ".join(filter(None, (empty, _drain_words(figure, drawn, [run])))) or None
    if amount == 0:
        return None, n, "no qualified tokens: the cost of one has no upper bound"
    return scale_of(figure, facts) * window_s / amount, n, None


def _nothing(reason: str, level: float) -> Interval:
    return Interval(
        value=None, lo=None, hi=None, level=level, method="none", n=0, n_eff=None, k=0, settled=False, reason=reason
    )


def quantile_of(figure: FigureDef) -> float:
    if figure.p is None:
        raise ValueError(f"{figure.name}: a quantile without p")
    return figure.p
