"""The summary both the terminal and the page give: one row per load point, its state, and the notes that go with it."""

import math
from dataclasses import dataclass

import numpy as np

from tfbench.core.kinds import RunStatus
from tfbench.report.conditions import each_fresh, server_cautions
from tfbench.report.escape import plain
from tfbench.report.fmt import (
    NOTHING,
    UNSETTLED,
    gathered,
    merged,
    method_sentence,
    repeats,
    shown,
    skeleton,
    span,
)
from tfbench.report.judged import chosen_runs, warm_up_words
from tfbench.report.model import Figure, LoadPoint, ReportData
from tfbench.stats.serial import LEAST_REPEATS, Linked, linked_repeats

FOLLOWED = ("ttft_p50_ms", "tpot_p50_ms", "e2e_p50_ms")
"""The figures of which repeats are looked at for following one another."""


@dataclass(frozen=True)
class Column:
    """A summary column: two header lines and the figure under it."""

    head: str
    unit: str
    figure: str


def columns(data: ReportData) -> tuple[Column, ...]:
    """The summary's figures, in order."""
    currency = str(data.study.section("cost").get("currency") or "cost")
    return (
        Column("achieved", "req/s", "throughput_requests_per_s"),
        Column("TTFT P50", "ms", "ttft_p50_ms"),
        Column("TTFT P95", "ms", "ttft_p95_ms"),
        Column("TPOT P50", "ms", "tpot_p50_ms"),
        Column("goodput", "req/s", "goodput_requests_per_s"),
        Column("good", "%", "good_fraction"),
        Column("cost", f"{currency}/Mtok", "cost_per_million_qualified_tokens"),
    )


@dataclass(frozen=True)
class State:
    """What the runs of one load point were judged to be. `fit` is False when any is INVALID, None when not judged.

    warm: no warm-up was seen to leak into the windows.
    """

    validity: str
    stability: str
    fit: bool | None
    steady: bool | None
    status: str
    warm: bool = True


def state(data: ReportData, load: LoadPoint) -> State:
    """The judgements over a load point's runs; stability is that of the runs its figures are made from."""
    runs = data.runs_at(load)
    judged = [run for run in runs if run.validity is not None]
    invalid = [run for run in judged if run.useless]
    slow = sum(run.slow_client for run in judged)
    chosen = chosen_runs(runs)
    calm = [run for run in chosen if run.stability is not None]
    unstable = [run for run in calm if run.unstable]
    other = sorted({run.stability for run in calm if run.stability and not run.unstable} - {"stable"})
    return State(
        validity=_some("INVALID", len(invalid), len(runs))
        or _some("slow client", slow, len(runs))
        or ("VALID" if judged and len(judged) == len(runs) else "not judged"),
        stability=_some("unstable", len(unstable), len(chosen)) or (", ".join(other) or "stable" if calm else NOTHING),
        fit=False if invalid else True if judged and not slow else None,
        steady=False if unstable else True if calm and not other else None,
        warm=all(one.load != load for one in data.leaks),
        status=", ".join(
            f"{sum(run.status == status for run in runs)} {status}"
            for status in RunStatus
            if status != RunStatus.COMPLETE and any(run.status == status for run in runs)
        ),
    )


def _some(word: str, count: int, total: int) -> str:
    if not count:
        return ""
    return word if count == total else f"{count}/{total} {word}"


def marks_notes(data: ReportData) -> list[tuple[str, tuple[str, ...]]]:
    """(meaning, reasons) of every mark that is in the summary; a reason starts with the figures it is about."""
    heads = {column.figure: column.head for column in columns(data)}
    words = {
        UNSETTLED: "? too little was measured to be sure of it",
        "≥": "≥ or ≤ only that bound is known",
        NOTHING: f"{NOTHING} no value",
    }
    by_mark: dict[str, dict[str, list[tuple[str, str, str]]]] = {}
    for load in data.loads:
        for name, head in heads.items():
            figure = data.figure(load, name)
            text = shown(figure)
            mark = "≥" if text.mark in {"≥", "≤"} else text.mark
            if not mark:
                continue
            reason = (figure.reason if figure is not None else None) or (
                "not in this study" if figure is None else "no reason given"
            )
            # Reasons that tell other numbers alone are one reason.
            by_mark.setdefault(mark, {}).setdefault(skeleton(reason), []).append((head, load.label, reason))
    return [
        (
            words[mark],
            tuple(
                f"{gathered([(head, at) for head, at, _ in told])}: {merged([reason for *_, reason in told])}"
                for told in found.values()
            ),
        )
        for mark, found in by_mark.items()
    ]


def method_notes(data: ReportData) -> list[str]:
    """n, K and method of the summary's figures, one line per group that shares a method."""
    groups: dict[str, tuple[list[str], list[Figure]]] = {}
    for column in columns(data):
        figures = [f for load in data.loads if (f := data.figure(load, column.figure)) is not None and not f.empty]
        if figures:
            heads, held = groups.setdefault(method_sentence(figures), ([], []))
            heads.append(column.head)
            held += figures
    return [
        f"{', '.join(heads)}: n = {span([f.n for f in held if f.n is not None])}, "
        f"{repeats([f.k for f in held if f.k is not None])}. {sentence}"
        for sentence, (heads, held) in groups.items()
    ]


def sample_notes(data: ReportData) -> list[str]:
    """What the summary's intervals rest on, in one plain line; where runs are one or two, what those can't know."""
    figures = [f for column in columns(data) for load in data.loads if (f := data.figure(load, column.figure))]
    held = [figure for figure in figures if not figure.empty and figure.k]
    if not held:
        return []
    ks, ns = ({getattr(figure, name) for figure in held} - {None, 0} for name in ("k", "n"))
    level = max(figure.level or 0.0 for figure in held)
    runs = f"{span(sorted(ks))} run{'' if ks == {1} else 's'} a load point"
    rest = f"Intervals hold with {100 * level:g} %, from {runs} and {span(sorted(ns))} requests in all."
    few = min(ks)
    if few > 2:
        return [rest]
    which = "this run only" if few == 1 else "these runs only"
    return [f"{rest} They speak of {which}: how far runs differ isn't known; 5 repeats tell (load.repeats = 5)."]


def caution_notes(data: ReportData) -> list[str]:
    """What to be careful about in all figures: warm-ups that leak, repeats that follow one another, prompts from a
    cache, requests lost to closing connections."""
    by_words: dict[str, list[tuple[str, str]]] = {}
    for one in data.leaks:
        words = warm_up_words(one)
        by_words.setdefault(skeleton(words), []).append((one.load.label, words))
    notes = [
        f"warm-up at {', '.join(at for at, _ in told)}: {merged([words for _, words in told])}"
        for told in by_words.values()
    ]
    linked = linked_over_repeats(data)
    if linked is not None and linked.told:
        mend = (
            "something besides the server's process lasts from one to the next (its machine, its neighbours): spread"
            " them over hours, or make 10 and more"
            if each_fresh(data)
            else "restart the server before each ([hooks] restart), or make 10 and more"
        )
        notes.append(
            f"repeats follow one another (neighbours correlate by {linked.correlation:.1f}): intervals over {linked.k}"
            f" repeats are too narrow; {mend}"
        )
    return notes + server_cautions(data)


def linked_over_repeats(data: ReportData) -> Linked | None:
    """How far a repeat's medians follow those of the repeat before, pooled over load points; None for a search."""
    if data.capacity is not None:
        return None
    kept = {run.run_id: run.order_index for point in data.loads for run in chosen_runs(data.runs_at(point))}
    repeats = sorted({one.repeat for one in data.run_figures if one.run_id in kept})
    if len(repeats) < LEAST_REPEATS:
        return None
    places = {repeat: i for i, repeat in enumerate(repeats)}
    loads = {load: i for i, load in enumerate(data.loads)}
    series = np.full((len(FOLLOWED), len(loads), len(places)), math.nan)
    for one in data.run_figures:
        if one.name in FOLLOWED and one.run_id in kept and one.value is not None and one.value > 0.0:
            series[FOLLOWED.index(one.name), loads[one.load], places[one.repeat]] = math.log(one.value)
    return linked_repeats(series)


def unfit_notes(data: ReportData) -> list[tuple[bool, str]]:
    """(invalid, line) per load point and kind: which repeats, and the reasons, told once where they agree."""
    out = []
    for load in data.loads:
        for invalid in (True, False):
            runs = [run for run in data.runs_at(load) if (run.invalid if invalid else run.unstable)]
            if not runs:
                continue
            told = list(dict.fromkeys(run.validity_reasons if invalid else run.stability_reasons for run in runs))
            words = "; ".join(told[0]) or "no reason given"
            more = " (and the like in the others)" if len(told) > 1 else ""
            which = ", ".join(str(run.repeat) for run in runs)
            verdict = "INVALID" if invalid else "unstable"
            out.append((invalid, f"{verdict} at {load.label}, repeat {which}: {words}{more}"))
    return out


def standing_notes(data: ReportData) -> list[str]:
    """What holds for the whole study: quality, simulation, imports, unfinished runs, vacuous and unknown SLO terms."""
    notes = []
    if not data.study.judged:
        notes.append("quality not judged")
    if data.simulated:
        notes.append("SIMULATED: no system was measured")
    imported = sorted({run.origin for run in data.runs if run.origin.startswith("imported:")})
    if imported:
        notes.append(f"origin {', '.join(imported)}")
    for load in data.loads:
        runs = data.runs_at(load)
        left_out = sum(run.useless for run in runs)
        if 0 < left_out < len(runs):
            notes.append(f"{load.label}: {left_out} of {len(runs)} runs INVALID and left out of the figures")
        status = state(data, load).status
        if status:
            notes.append(f"{load.label}: {status} of {len(data.runs_at(load))} runs")
    notes += count_notes(data)
    if not data.runs:
        notes.append("no runs")
    return notes


def count_notes(data: ReportData) -> list[str]:
    """What must be known of how requests were counted: vacuous and unknown SLO terms, exclusions, drain in a window."""
    notes = []
    for words, counted in (
        ("met an SLO term vacuously (one output token or chunk)", {c.load: c.vacuous for c in data.counts}),
        (
            "ok, but not good because the tokens or chunks of an SLO term are unknown",
            {c.load: c.term_unknown for c in data.counts},
        ),
        ("ok, with unknown output tokens", {c.load: c.tokens_unknown for c in data.counts}),
        (
            "answers that showed no text, so that their TTFT is that of their first chunk",
            {c.load: c.shows_nothing for c in data.counts},
        ),
        ("ok, though no finish_reason came", {c.load: c.no_finish_reason for c in data.counts}),
        ("excluded by the manifest's accounting", {c.load: c.excluded for c in data.counts}),
    ):
        places = ", ".join(f"{n:,} at {load.label}" for load, n in counted.items() if n)
        if places:
            notes.append(f"{words}: {places}")
    if data.study.section("endpoint").get("stream") is False:
        notes.append("answers came whole (endpoint.stream = false): TTFT is E2E, and there is no TPOT or ICL")
    return notes + _drain(data)


def _drain(data: ReportData) -> list[str]:
    """A sentence for each load point whose rates' window holds drain: the rate between arrivals, and the good of it."""
    notes = []
    for load in data.loads:
        throughput, good = (
            data.figure(load, f"{name}_requests_per_s") for name in ("throughput", "goodput_between_arrivals")
        )
        reason = (throughput and throughput.reason) or ""
        for part in reason.split("; "):
            if " of drain" in part:
                of_them = "" if good is None or good.empty else f", and {shown(good).line} of them good"
                notes.append(f"at {load.label} {part}{of_them}")
    return notes


def headline(data: ReportData) -> str:
    """One line: how many of the planned runs there are, how many are valid, how many judged load points are stable."""
    valid = sum((run.validity or "").lower() == "valid" for run in data.runs)
    invalid = sum(run.invalid for run in data.runs)
    states = [state(data, load) for load in data.loads]
    missing = unfinished(data)
    parts = [*([missing] if missing else []), f"{valid} of {len(data.runs)} runs VALID"]
    if invalid:
        parts.append(f"{invalid} INVALID")
    calm = [one for one in states if one.stability != NOTHING]
    if calm:
        parts.append(f"{sum(one.steady is True for one in calm)} of {_points(len(calm), len(states))} stable")
    elif data.runs:
        parts.append("stability not judged")
    ks = [len(data.runs_at(load)) for load in data.loads]
    parts.append(f"K = {span(ks)}")
    return ", ".join(parts)


def runs_words(data: ReportData) -> str:
    """`15 runs: 12 valid, 2 invalid (left out), 1 with a slow client`."""
    count = len(data.runs)
    invalid, slow = sum(run.useless for run in data.runs), sum(run.slow_client for run in data.runs)
    valid = sum(run.validity is not None for run in data.runs) - invalid - slow
    planned = data.planned_runs
    every = f"{count} of {planned} planned runs" if unfinished(data) else f"{count} run{'' if count == 1 else 's'}"
    kept = len({run.run_id for load in data.loads for run in chosen_runs(data.runs_at(load))})
    fate = " (left out)" if kept + invalid == count else ""
    parts = [
        f"{valid} valid" if valid else "",
        f"{invalid} invalid{fate}" if invalid else "",
        f"{slow} with a slow client" if slow else "",
        f"{count - valid - invalid - slow} not judged" if count - valid - invalid - slow else "",
    ]
    told = ", ".join(filter(None, parts))
    return f"{every}: {told}" if told else every


def unfinished(data: ReportData) -> str:
    """How many of the planned runs there are, where some are missing; else nothing."""
    planned = data.planned_runs
    return "" if planned is None or len(data.runs) >= planned else f"{len(data.runs)} of {planned} planned runs"


def simulated_words(data: ReportData) -> str:
    """SIMULATED, and on which profiles; nothing for a study that measured."""
    if not data.simulated:
        return ""
    return "SIMULATED" + (f" on {', '.join(plain(name, 80) for name in data.profiles)}" if data.profiles else "")


def served_words(data: ReportData) -> str:
    """Which profile of the reference engine the study itself served; nothing for any other system."""
    return "" if data.simulated else "".join(f"profile {plain(name, 80)}" for name in data.profiles)


def _points(judged: int, every: int) -> str:
    return f"{judged} load points" if judged == every else f"{judged} load points judged for it"
