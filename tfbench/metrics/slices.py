"""Figures run by run with the facts behind them, over all attempts and over buckets of them: what comparisons take."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tfbench.metrics.definitions import FIGURES, FigureDef
from tfbench.metrics.facts import Facts, RunWindow, study_facts
from tfbench.metrics.figures import (
    READERS,
    event_size,
    no_span_reason,
    quantile_of,
    ratio_run,
    scale_of,
    unpriced_reason,
)
from tfbench.metrics.samples import Flags, attempt_flags, ended
from tfbench.metrics.soundness import Moved
from tfbench.stats.combine import combine_chunk_quantile, combine_fraction, combine_quantile, combine_ratio
from tfbench.stats.correlation import worth_of_each
from tfbench.stats.interval import Interval
from tfbench.stats.quantile import sample_quantile
from tfbench.stats.quantile_within_run import is_settled, short_words, worth_by_run
from tfbench.stats.ratio import SETTLED_EVENTS, few_events_reason
from tfbench.stats.sample_size import (
    plan_times,
    planned_attempts,
    planned_attempts_for_fraction,
    planned_attempts_for_rates,
)


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """Some of the attempts: those whose `by` (input_tokens, tenant, …) is `label`."""

    by: str
    label: str

    @property
    def text(self) -> str:
        return f"{self.by} {self.label}"


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One figure of one run. `value` is +inf where it lies among failures, None where unknown, and `reason` says why.

    `data` is what it was made from: a float array, `Clusters`, `Flags` or a `RatioRun` (times `scale`), by the figure's
    kind; None without a value. `counted`, of rates and costs: which of the run's attempts they count. `moved`: how far
    the client itself may have moved it; None where it didn't.
    """

    value: float | None
    n: int
    data: Any
    scale: float = 1.0
    reason: str | None = None
    counted: Flags | None = None
    moved: Moved | None = None


RunSamples = Mapping[str, Sample]
"""A figure's samples by run_id."""


def bucket_samples(
    con: duckdb.DuckDBPyConnection,
    study_id: str,
    run_ids: Sequence[str],
    names: Sequence[str],
    buckets: pa.Table | None = None,
) -> dict[tuple[Bucket | None, str], RunSamples]:
    """The figures `names` of some runs of a study: over all attempts (None) and over each bucket.

    `buckets` has one row per attempt and bucket it is in: run_id, attempt_id, by, label. An attempt may be in several;
    every attempt of the run should be in one of each `by`, failed ones too, or a bucket looks better than it is.
    """
    found: dict[tuple[Bucket | None, str], RunSamples] = {}
    wanted = [FIGURES[name] for name in names]
    with study_facts(con, study_id, run_ids) as facts:
        for bucket in _narrowed(facts, buckets):
            found |= {(bucket, figure.name): samples for figure, samples in _samples(facts, wanted)}
    return found


def combined(figure: FigureDef, samples: Sequence[Sample], level: float = 0.95) -> Interval:
    """The figure over runs, as `figures` gives it; of samples without data only K is short."""
    known = [sample for sample in samples if sample.data is not None]
    data = [sample.data for sample in known]
    if figure.kind == "fraction":
        return combine_fraction([one.value for one in data], score=[one.score for one in data], level=level)
    if figure.kind == "chunk_quantile":
        return combine_chunk_quantile(data, quantile_of(figure), level=level)
    if figure.kind == "quantile":
        return combine_quantile(data, quantile_of(figure), level=level)
    return combine_ratio(data, scale=known[0].scale if known else 1.0, level=level)


def short_reason(figure: FigureDef, samples: Sequence[Sample]) -> str | None:
    """Why runs are too short to compare a figure of theirs; None where they aren't.

    Of fractions they never are: exact bounds take any length.

    Each run by itself, for quantiles too, though all together may carry the figure: pairs of shorter runs were measured
    to hold their ratio too rarely (M/M/1, M/H2/1 at load 0.8, a tenth of the planned n: 87 to 92 %).
    """
    data = [sample.data for sample in samples if sample.data is not None]
    if not data or figure.kind == "fraction":
        return None
    if figure.kind in {"rate", "cost"}:
        return next(iter(few_events_reason([one.events() for one in data])), None)
    p = quantile_of(figure)
    worth = worth_by_run(*_values(figure, data), p)
    return None if is_settled(worth, p) else short_words(worth, p)


@dataclass(frozen=True, slots=True)
class Length:
    """Attempts (gaps of chunk figures) of the shortest run, and how many to plan, as the coverage study does."""

    n: int
    needed: int


def length_of(figure: FigureDef, samples: Sequence[Sample], *, resolved: float = 0.0) -> Length | None:
    """None without data. `resolved`: how far from 0 or 1 shares (of rates, the counted ones) needn't be told apart."""
    known = [sample for sample in samples if sample.data is not None]
    if not known:
        return None
    if figure.kind in {"quantile", "chunk_quantile"}:
        p = quantile_of(figure)
        values, owners = _values(figure, [sample.data for sample in known])
        times = plan_times([len(one) for one in values], worth_by_run(values, owners, p), min(p, 1.0 - p))
        return Length(min(map(len, values)), planned_attempts(p, *times))
    if figure.kind == "fraction":
        flags = [sample.data.value for sample in known]
        rarer, times = _rarer(flags, resolved)
        fraction = 0.0 < rarer < 1.0
        needed = planned_attempts_for_fraction(rarer, *times) if fraction else planned_attempts_for_rates(*times)
        return Length(min(map(len, flags)), needed)
    events = min(sample.data.events() for sample in known)
    flags = [sample.counted.value for sample in known if sample.counted is not None and len(sample.counted.value)]
    if not flags:
        return Length(events, SETTLED_EVENTS)
    n = min(map(len, flags))
    settles = math.ceil(SETTLED_EVENTS * n / max(1, events))
    return Length(n, max(settles, planned_attempts_for_rates(*_rarer(flags, resolved)[1])))


def _values(figure: FigureDef, data: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
    """What a quantile is taken of, run by run, and for gaps whose they are."""
    if figure.kind == "chunk_quantile":
        return [one.values for one in data], [one.owner for one in data]
    return list(data), None


def _rarer(flags: Sequence[Any], resolved: float) -> tuple[float, tuple[float, float]]:
    """The share of the rarer kind, `resolved` at least; tau and slow of a plan."""
    share = float(np.concatenate(flags).mean())
    rarer = max(min(share, 1.0 - share), resolved)
    return rarer, plan_times([len(one) for one in flags], worth_of_each(flags, None), rarer)


def _narrowed(facts: Facts, buckets: pa.Table | None) -> Iterator[Bucket | None]:
    """Each bucket, with `attempt_facts` narrowed to it meanwhile: every definition then serves as it stands."""
    yield None
    if buckets is None or not len(buckets):
        return
    facts.con.register("buckets", buckets)
    facts.con.execute("ALTER TABLE attempt_facts RENAME TO all_facts")
    for by, label in facts.con.execute('SELECT DISTINCT "by", label FROM buckets ORDER BY ALL').fetchall():
        facts.con.execute(
            "CREATE OR REPLACE TEMP TABLE attempt_facts AS FROM all_facts SEMI JOIN"
            ' (FROM buckets WHERE "by" = ? AND label = ?) USING (run_id, attempt_id) ORDER BY seq',
            [by, label],
        )
        yield Bucket(by, label)


def _samples(facts: Facts, wanted: Sequence[FigureDef]) -> Iterator[tuple[FigureDef, RunSamples]]:
    queries = {figure.sql: READERS[figure.kind] for figure in wanted}
    queries |= {figure.size_sql: ended for figure in wanted if figure.size_sql is not None}
    queries |= {FIGURES[figure.counts].sql: attempt_flags for figure in wanted if figure.counts is not None}
    drawn = {sql: reader(facts, sql) for sql, reader in queries.items()}
    for figure in wanted:
        size = event_size(figure, drawn, facts.runs) if figure.kind in {"rate", "cost"} and facts.runs else 1.0
        yield (
            figure,
            {run.run_id: _sample(figure, facts, drawn, run, size) for run in facts.runs},
        )


def _sample(figure: FigureDef, facts: Facts, drawn: Mapping[str, Any], run: RunWindow, size: float | None) -> Sample:
    data = drawn[figure.sql][run.index]
    if figure.counts is not None:
        return _ratio_sample(figure, facts, data, run, size, drawn[FIGURES[figure.counts].sql][run.index])
    values = data.value if figure.kind == "fraction" else data.values if figure.kind == "chunk_quantile" else data
    n = int(values.size)
    if not n:
        return Sample(None, 0, None, reason=figure.empty)
    if figure.kind == "fraction":
        return Sample(float(values.mean()), n, data)
    value = sample_quantile(values, quantile_of(figure))
    lost = int(np.count_nonzero(np.isinf(values)))
    reason = f"{lost} of {n} never came: the quantile lies among them" if math.isinf(value) else None
    return Sample(value, n, data, reason=reason)


def _ratio_sample(
    figure: FigureDef, facts: Facts, events: Any, run: RunWindow, size: float | None, counted: Flags
) -> Sample:
    n = int(events.value.size)
    unpriced = unpriced_reason(figure, facts)
    if unpriced is not None:
        return Sample(None, n, None, reason=unpriced)
    if (span := run.span(arrivals=figure.arrivals)) is None:
        return Sample(None, n, None, reason=no_span_reason(figure, [run]))
    if events.unknown:
        return Sample(None, n, None, reason=f"tokens unknown for {events.unknown} of {events.unknown + n} attempts")
    ratio, scale = ratio_run(figure, *span, events, size), scale_of(figure, facts)
    value = scale * ratio.ratio()
    reason = "no qualified tokens: the cost of one has no upper bound" if math.isinf(value) else None
    return Sample(value, n, ratio, scale, reason, counted)
