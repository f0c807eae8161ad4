"""The one JSON document `--json` prints: ids, runs with their judgements, figures, outcomes. No NaN, no infinity."""

import math
from dataclasses import asdict
from typing import Any

from tfbench.core.jsonio import finite
from tfbench.report.conditions import conditions
from tfbench.report.curves import operating_points
from tfbench.report.lines import plain_lines
from tfbench.report.model import Figure, LoadPoint, ReportData, Run
from tfbench.report.overview import caution_notes, headline, linked_over_repeats, standing_notes
from tfbench.stats.warmup import METHOD

SCHEMA = "tfbench.report/1"


def json_document(data: ReportData) -> dict[str, Any]:
    """The study as plain JSON values.

    A load of infinity (all at once) has load_value null; `load` always names it. A figure's null value, lo or hi is
    unknown or open, and its `reason` says why.
    """
    study = data.study
    origins = {run.run_id: run.origin for run in data.runs}
    document = {
        "schema": SCHEMA,
        "study": {
            "study_id": study.study_id,
            "name": study.name,
            "manifest_id": study.manifest_id,
            "workload_id": study.workload_id,
            "system_id": study.system_id,
            "created_ns": study.created_ns,
            "tfbench_version": study.version,
            "host": dict(study.host),
            "mode": data.mode,
            "simulated": data.simulated,
            "profiles": list(data.profiles),
            "runs": len(data.runs),
            "planned_runs": data.planned_runs,
            "quality_judged": study.judged,
        },
        "summary": headline(data),
        "lines": [asdict(line) for line in plain_lines(data)],
        "notes": standing_notes(data),
        "conditions": conditions(data),
        "cautions": caution_notes(data),
        "warm_ups": [
            _load(one.load) | {k: v for k, v in asdict(one).items() if k != "load"} | {"method": METHOD}
            for one in data.warm_ups
        ],
        "repeats": None if (linked := linked_over_repeats(data)) is None else asdict(linked),
        "manifest": dict(study.manifest),
        "runs": [_run(run) for run in data.runs],
        "figures": [
            _load(f.load)
            | {
                "figure": f.name,
                "unit": f.unit,
                "direction": f.direction,
                "value": f.value,
                "lo": f.lo,
                "hi": f.hi,
                "level": f.level,
                "method": f.method,
                "n": f.n,
                "n_eff": f.n_eff,
                "k": f.k,
                "settled": f.settled,
                "reason": f.reason,
                "origin": data.origin(f.load),
            }
            for f in data.figures
        ],
        "operating_curve": [
            _load(point.load)
            | {
                name: _interval(getattr(point, part))
                for name, part in (
                    ("output_tokens_per_s", "system"),
                    ("output_tokens_per_s_per_user", "user"),
                    ("ttft_p95_ms", "ttft"),
                    ("goodput_requests_per_s", "goodput"),
                    ("cost_per_million_qualified_tokens", "cost"),
                )
            }
            | {"dominated_by": None if point.dominated_by is None else point.dominated_by.label}
            for point in operating_points(data)
        ],
        "capacity": None if data.capacity is None else asdict(data.capacity),
        "run_figures": [
            _load(f.load)
            | {
                "run_id": f.run_id,
                "repeat": f.repeat,
                "figure": f.name,
                "unit": f.unit,
                "value": f.value,
                "n": f.n,
                "reason": f.reason,
                "origin": origins.get(f.run_id),
            }
            for f in data.run_figures
        ],
        "outcomes": [
            _load(row.load) | {"repeat": row.repeat, "phase": row.phase, "outcome": row.outcome, "n": row.n}
            for row in data.outcomes
        ],
        "errors": [
            _load(row.load) | {"outcome": row.outcome, "http_status": row.http_status, "error": row.error, "n": row.n}
            for row in data.errors
        ],
        "counts": [
            _load(row.load)
            | {
                "counted": row.counted,
                "excluded": row.excluded,
                "vacuous": row.vacuous,
                "term_unknown": row.term_unknown,
                "tokens_unknown": row.tokens_unknown,
                "shows_nothing": row.shows_nothing,
                "no_finish_reason": row.no_finish_reason,
            }
            for row in data.counts
        ],
        "definitions": {
            d.name: {
                "unit": d.unit,
                "direction": d.direction,
                "words": d.words,
                "source": d.source,
                "aliases": dict(d.aliases),
            }
            for d in data.definitions
        },
    }
    cleaned: dict[str, Any] = finite(document)
    return cleaned


def _load(load: LoadPoint) -> dict[str, Any]:
    return {"load_value": load.value if math.isfinite(load.value) else None, "load": load.number, "arm": load.arm}


def _interval(figure: Figure) -> dict[str, Any]:
    return {"value": figure.value, "lo": figure.lo, "hi": figure.hi, "settled": figure.settled, "reason": figure.reason}


def _run(run: Run) -> dict[str, Any]:
    return _load(run.load) | {
        "run_id": run.run_id,
        "mode": run.mode,
        "repeat": run.repeat,
        "order_index": run.order_index,
        "status": run.status,
        "origin": run.origin,
        "seed": run.seed,
        "schedule_sha256": run.schedule_sha256,
        "cache_state": run.cache_state,
        "cached_share": run.cached_share,
        "restart": run.restart,
        "window_s": run.window_s,
        "validity": {
            "verdict": run.validity,
            "reasons": list(run.validity_reasons),
            "slow_client": run.slow_client,
        },
        "stability": {"verdict": run.stability, "reasons": list(run.stability_reasons)},
        "signals": [asdict(signal) for signal in run.signals],
        "observed": dict(run.observed),
    }
