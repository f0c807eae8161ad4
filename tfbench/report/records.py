"""Turns the warehouse's and the metrics' rows into the frozen shapes of `model`; NaN, NA and infinity become None."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfbench.core.jsonio import dump_text
from tfbench.metrics.courses import Course
from tfbench.report.model import (
    CapacityFound,
    Counts,
    Definition,
    ErrorCount,
    Figure,
    LoadPoint,
    OutcomeCount,
    ProbedLoad,
    Run,
    RunFigure,
    Signal,
    Study,
    WarmUp,
)

Record = Mapping[str, Any]


def missing(value: Any) -> bool:
    """None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    if isinstance(value, str | bytes | list | tuple | dict | bool | int):
        return False
    return type(value).__name__ in {"NAType", "NaTType"} or bool(value != value)


def opt_float(value: Any) -> float | None:
    """A finite float, or None."""
    if missing(value):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def opt_int(value: Any) -> int | None:
    """An int, or None."""
    number = opt_float(value)
    return None if number is None else int(value)


def opt_str(value: Any) -> str | None:
    """Text, or None."""
    return None if missing(value) else str(value)


def load_point(record: Record) -> LoadPoint:
    """The load point of a row with `load_value` and perhaps `arm`."""
    value = record.get("load_value")
    return LoadPoint(math.inf if missing(value) else float(value), opt_str(record.get("arm")))  # type: ignore[arg-type]


def parsed(value: Any) -> Any:
    """A JSON column's value, whether it comes as text or already parsed."""
    if missing(value):
        return None
    return json.loads(value) if isinstance(value, str | bytes) else value


def reasons_of(value: Any) -> tuple[str, ...]:
    """The reasons of a verdict as lines of text."""
    found = parsed(value)
    if found is None:
        return ()
    items = found if isinstance(found, list) else [found]
    return tuple(item if isinstance(item, str) else dump_text(item) for item in items)


def study_of(record: Record) -> Study:
    """The study's row."""
    return Study(
        study_id=str(record["study_id"]),
        manifest_id=str(record["manifest_id"]),
        workload_id=str(record["workload_id"]),
        system_id=str(record["system_id"]),
        created_ns=opt_int(record.get("created_ns")),
        version=str(record.get("tfbench_version") or "unknown"),
        manifest=parsed(record.get("manifest")) or {},
        host=parsed(record.get("host")) or {},
    )


def signals_of(value: Any) -> tuple[Signal, ...]:
    """The signals column: name -> {value, limit, unit, relation, ok}, or name -> a bare value."""
    found = parsed(value)
    if not isinstance(found, Mapping):
        return ()
    return tuple(_signal(str(name), item) for name, item in found.items())


def _signal(name: str, item: Any) -> Signal:
    fields = item if isinstance(item, Mapping) else {"value": item}
    raw = fields.get("value")
    numeric = isinstance(raw, int | float) and not isinstance(raw, bool)
    limit = fields.get("limit")
    ok = fields.get("ok")
    text = None if numeric or raw is None else raw if isinstance(raw, str) else dump_text(raw)
    if text is None and raw is None and len(fields) > 0 and not {"limit", "ok"} & set(fields):
        text = dump_text(dict(fields)) if isinstance(item, Mapping) else None
    return Signal(
        name=name,
        value=opt_float(raw) if numeric else None,
        limit=opt_float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None,
        unit=str(fields.get("unit") or ""),
        relation=str(fields.get("relation") or fields.get("op") or "<="),
        ok=ok if isinstance(ok, bool) else None,
        text=text,
    )


def runs_of(runs: Iterable[Record], verdicts: Iterable[Record]) -> tuple[Run, ...]:
    """The runs with their judgements, by load, arm, repeat. Of several verdicts of a kind the last row counts."""
    judged = {(str(row["run_id"]), str(row["kind"])): row for row in verdicts}

    def verdict(run_id: str, kind: str) -> tuple[str | None, tuple[str, ...]]:
        row = judged.get((run_id, kind))
        return (None, ()) if row is None else (opt_str(row["verdict"]), reasons_of(row.get("reasons")))

    out = []
    for row in runs:
        run_id = str(row["run_id"])
        start, end = opt_int(row.get("measure_start_ns")), opt_int(row.get("measure_end_ns"))
        validity, validity_reasons = verdict(run_id, "validity")
        stability, stability_reasons = verdict(run_id, "stability")
        observed = parsed(row.get("observed"))
        out.append(
            Run(
                run_id=run_id,
                load=load_point(row),
                mode=str(row.get("mode") or "open"),
                repeat=opt_int(row.get("repeat")) or 0,
                order_index=opt_int(row.get("order_index")) or 0,
                status=str(row.get("status") or "complete"),
                origin=str(row.get("origin") or "measured"),
                seed=opt_int(row.get("seed")),
                schedule_sha256=opt_str(row.get("schedule_sha256")),
                cache_state=opt_str(row.get("cache_state")),
                cached_share=opt_float(row.get("cached_share")),
                restart=opt_int(row.get("restart")),
                window_s=None if start is None or end is None else (end - start) / 1e9,
                validity=validity,
                validity_reasons=validity_reasons,
                stability=stability,
                stability_reasons=stability_reasons,
                signals=signals_of(row.get("signals")),
                observed=observed if isinstance(observed, Mapping) else {},
            )
        )
    return tuple(sorted(out, key=lambda run: (*run.load.order, run.repeat, run.order_index)))


def figures_of(rows: Iterable[Record]) -> tuple[Figure, ...]:
    """The figures frame's rows, in the frame's order."""
    return tuple(
        Figure(
            load=load_point(row),
            name=str(row["figure"]),
            unit=str(row.get("unit") or ""),
            direction=opt_str(row.get("direction")),
            value=opt_float(row.get("value")),
            lo=opt_float(row.get("lo")),
            hi=opt_float(row.get("hi")),
            level=opt_float(row.get("level")),
            method=opt_str(row.get("method")),
            n=opt_int(row.get("n")),
            n_eff=opt_float(row.get("n_eff")),
            k=opt_int(row.get("k")),
            settled=not missing(row.get("settled")) and bool(row["settled"]),
            reason=opt_str(row.get("reason")),
        )
        for row in rows
    )


def run_figures_of(rows: Iterable[Record]) -> tuple[RunFigure, ...]:
    """The run figures frame's rows."""
    return tuple(
        RunFigure(
            run_id=str(row.get("run_id")),
            load=load_point(row),
            repeat=opt_int(row.get("repeat")) or 0,
            name=str(row["figure"]),
            unit=str(row.get("unit") or ""),
            value=opt_float(row.get("value")),
            n=opt_int(row.get("n")),
            reason=opt_str(row.get("reason")),
        )
        for row in rows
    )


def outcomes_of(rows: Iterable[Record]) -> tuple[OutcomeCount, ...]:
    """The outcomes frame's rows."""
    return tuple(
        OutcomeCount(
            load=load_point(row),
            repeat=opt_int(row.get("repeat")) or 0,
            phase=str(row["phase"]),
            outcome=str(row["outcome"]),
            n=int(row["n"]),
        )
        for row in rows
    )


def errors_of(rows: Iterable[Record]) -> tuple[ErrorCount, ...]:
    """Counts of error texts."""
    return tuple(
        ErrorCount(
            load=load_point(row),
            outcome=str(row["outcome"]),
            http_status=opt_int(row.get("http_status")),
            error=opt_str(row.get("error")),
            n=int(row["n"]),
        )
        for row in rows
    )


def counts_of(rows: Iterable[Record]) -> tuple[Counts, ...]:
    """The counts frame's rows (one a run), summed over each load point's runs."""
    names = ("counted", "excluded", "vacuous", "term_unknown", "tokens_unknown", "shows_nothing", "no_finish_reason")
    totals: dict[LoadPoint, dict[str, int]] = {}
    for row in rows:
        held = totals.setdefault(load_point(row), dict.fromkeys(names, 0))
        for name in names:
            held[name] += opt_int(row.get(name)) or 0
    return tuple(Counts(load=load, **held) for load, held in sorted(totals.items(), key=lambda item: item[0].order))


def definition_of(
    name: str, unit: str, direction: str | None, words: str, source: str, aliases: Mapping[str, str]
) -> Definition:
    """A definition with its aliases in order of tool."""
    return Definition(name, unit, direction, words, source, tuple(sorted((str(k), str(v)) for k, v in aliases.items())))


def warm_ups_of(found: Iterable[Course], warmup_s: float) -> tuple[WarmUp, ...]:
    """What the courses say; `warmup_s` is the manifest's."""
    out = []
    for one in found:
        leak = one.leak
        told = WarmUp(load_point({"load_value": one.load_value, "arm": one.arm}), leak.detected, leak.p, leak.reason)
        if leak.detected and one.leak_s is not None:
            # Half as much again, since where a leak ends is seen roughly; in steps that a person would write.
            needed = warmup_s + 1.5 * one.leak_s
            step = 10.0 ** math.floor(math.log10(needed)) / 2 if needed > 0.0 else 1.0
            told = replace(
                told,
                series=leak.series,
                quantile=leak.quantile,
                effect=opt_float(leak.effect),
                warmup_s=math.ceil(needed / step) * step,
                steady=leak.steady,
            )
        out.append(told)
    return tuple(out)


def capacity_of(verdicts: Iterable[Record]) -> CapacityFound | None:
    """The answer of a study's capacity search, kept as a verdict at its last run; None where there was no search."""
    found = [parsed(row.get("reasons")) for row in verdicts if row["kind"] == "capacity"]
    if not found or not isinstance(found[-1], Mapping):
        return None
    answer = found[-1]
    probed = [
        ProbedLoad(
            load=float(row["load"]),
            runs=int(row["runs"]),
            unfit=int(row["unfit"]),
            unstable=int(row["unstable"]),
            counted=int(row["counted"]),
            n_eff=opt_float(row.get("n_eff")),
            value=opt_float(row["value"]),
            lo=opt_float(row["lo"]),
            hi=opt_float(row["hi"]),
            met=row["met"],
            reason=opt_str(row["reason"]),
            scouted=row.get("scouted"),
        )
        for row in answer["evidence"]
    ]
    return CapacityFound(
        target=str(answer["target"]["words"]),
        unit=str(answer["unit"]),
        lo=opt_float(answer["lo"]),
        hi=opt_float(answer["hi"]),
        confidence=opt_float(answer["confidence"]),
        status=str(answer["status"]),
        limit=opt_str(answer["limit"]),
        reason=opt_str(answer["reason"]),
        runs=int(answer["runs"]),
        probed=tuple(probed),
        advice=opt_str(answer.get("advice")),
    )
