"""What people read first: at most five plain lines, each with a lead word. What stands behind them is elsewhere."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tfbench.core.kinds import Outcome, Phase
from tfbench.report.again import Again, told_by
from tfbench.report.curves import capacity_lines
from tfbench.report.escape import plain
from tfbench.report.fmt import gathered, merged, number, skeleton
from tfbench.report.judged import chosen_runs, withheld_at
from tfbench.report.model import Figure, LoadPoint, ReportData, Run
from tfbench.report.naming import ended, endings, reason_words
from tfbench.report.overview import caution_notes, columns, count_notes, state, unfinished
from tfbench.report.sections import slo_words

MOST = 5
MOSTLY = 0.9
"""A load meets the SLO in a headline where at least this share of its requests surely does."""
LONGER = re.compile(r"run (?:over )?(\d+) times as long")
_LONGEST = 100


@dataclass(frozen=True)
class Line:
    """One line: Result, Caution, Problem, Next or Details, and what it says."""

    lead: str
    text: str


def plain_lines(data: ReportData, again: Again | None = None) -> tuple[Line, ...]:
    """The lines, at most five. Every problem is in them or in the table's rows; cautions as far as there is room."""
    again = again or told_by(data)
    problems, cautions, step = problem_words(data), caution_words(data), next_words(data, again)
    room = MOST - 2 - bool(problems) - bool(step)
    told, more = cautions[:room], len(cautions) - room
    if told and more > 0:
        told[-1] += f" ({more} more: --verbose)"
    return (
        Line("Result", _sentence(result_words(data))),
        *(Line("Caution", _sentence(one)) for one in told),
        *([Line("Problem", _sentence("; ".join(problems)))] if problems else []),
        *([Line("Next", step)] if step else []),
        Line("Details", again.report_line()),
    )


def _sentence(text: str) -> str:
    return plain(text if text.endswith((".", "…", ")")) else f"{text}.")


class Standing(Enum):
    """What a load's settled figures say of the SLO."""

    MET = "met by most"
    MISSED = "missed by some"
    OPEN = "between"
    BEYOND = "overloaded"
    UNKNOWN = "not known"


def overloaded(data: ReportData, load: LoadPoint) -> bool:
    """Whether requests came faster than they were answered in most runs that count; INVALID ones tell nothing of it."""
    return not no_evidence(data, load) and withheld_at(data.runs_at(load))


def no_evidence(data: ReportData, load: LoadPoint) -> bool:
    """Whether every run of a load is useless."""
    runs = data.runs_at(load)
    return bool(runs) and all(run.useless for run in runs)


def usable(data: ReportData, load: LoadPoint, name: str) -> Figure | None:
    """A figure that a headline may rest on: settled, and not of INVALID runs alone."""
    figure = data.figure(load, name)
    return figure if figure is not None and figure.settled and not figure.empty else None


def standing(data: ReportData, load: LoadPoint) -> Standing:
    """Where a load stands."""
    if no_evidence(data, load):
        return Standing.UNKNOWN
    if overloaded(data, load):
        return Standing.BEYOND
    good = usable(data, load, "good_fraction")
    if good is None or (good.lo is None and good.hi is None):
        return Standing.UNKNOWN
    if good.lo is not None and good.lo >= MOSTLY:
        return Standing.MET
    return Standing.MISSED if good.hi is not None and good.hi < MOSTLY else Standing.OPEN


def result_words(data: ReportData) -> str:
    """What was found: which load meets the SLO, for what share, and which is beyond; without an SLO, what was done."""
    mark = "SIMULATED, no system was measured: " if data.simulated else ""
    if data.capacity is not None:
        return mark + capacity_lines(data.capacity)[0].rstrip(".")
    if not data.runs:
        return "nothing was measured"
    counts = outcome_counts(data)
    total = sum(map(sum, (one.values() for one in counts.values())))
    if total and not any(one[Outcome.OK] for one in counts.values()):
        return mark + f"none of {total:,} requests was answered well, so no figure says what the server can do"
    said = []
    for arm in data.arms or (None,):
        loads = [load for load in data.loads if load.arm == arm]
        words = _against_slo(data, loads) if slo_words(data) != "none" else _did(data, loads)
        said.append(words if arm is None else f"{plain(arm, 60)}: {words}")
    return mark + "; ".join(said)


def _against_slo(data: ReportData, loads: Sequence[LoadPoint]) -> str:
    where = {load: standing(data, load) for load in loads}
    met = [load for load in loads if where[load] is Standing.MET]
    above = [load for load in loads if not met or load.value > met[-1].value]
    beyond = next((load for load in above if where[load] is Standing.BEYOND), None)
    between = [load for load in above if beyond is None or load.value < beyond.value]
    shares = [one for one in between if where[one] in (Standing.MISSED, Standing.OPEN)]
    unknown = [one for one in between if where[one] is Standing.UNKNOWN]
    parts = []
    if met:
        good = usable(data, met[-1], "good_fraction")
        assert good is not None and good.lo is not None
        subject = f"{_name(data, met[-1])} {_verb(data, met[-1], 'meet', 'meets')}"
        parts.append(f"{subject} the SLO for at least {_percent(good.lo)} of requests")
    if shares:
        told = ", ".join(f"at {_name(data, one)} {_share_words(data, one)}" for one in shares[:3]) + " of them do"
        parts.append(told if met else f"no load surely meets the SLO for {_percent(MOSTLY)} of requests: {told}")
    if beyond is not None:
        parts.append(_beyond_words(data, beyond))
    if not parts:
        return "; ".join(["no load's share of good requests is settled yet", *_calm_words(data, loads)])
    if unknown:
        parts.append(f"at {', '.join(_name(data, one) for one in unknown)} it isn't settled")
    if met and not above and _finite(met[-1]):
        parts.append("no higher load was offered")
    return "; ".join(parts)


def _did(data: ReportData, loads: Sequence[LoadPoint]) -> str:
    """What the server did at the lowest and the highest load it kept up with, in plain words, and which is beyond."""
    beyond = next((load for load in loads if overloaded(data, load)), None)
    words = [*_calm_words(data, loads), *([] if beyond is None else [_beyond_words(data, beyond)])]
    return "; ".join(words) or "no figure is settled yet"


def _calm_words(data: ReportData, loads: Sequence[LoadPoint]) -> list[str]:
    """What the server gave at the lowest and the highest load that it kept up with, as far as it is settled."""
    calm = [load for load in loads if not overloaded(data, load) and not no_evidence(data, load)]
    out = []
    for load in dict.fromkeys((*calm[:1], *calm[-1:])):
        found = [
            f"{words} {number(figure.value)}{unit}"
            for name, words, unit in (
                ("throughput_requests_per_s", "the server answered", " requests/s"),
                ("ttft_p50_ms", "TTFT P50", " ms"),
                ("tpot_p50_ms", "TPOT P50", " ms"),
                ("e2e_p50_ms", "E2E P50", " ms"),
            )
            if (figure := usable(data, load, name)) is not None and figure.value is not None
        ]
        if found:
            out.append(f"{_offered(data, load)} {', '.join(found[:3])}")
    return out


def _beyond_words(data: ReportData, load: LoadPoint) -> str:
    rate = keeps_up(data)
    keeps = "" if rate is None else f", which keeps up to about {number(rate, 2)} req/s"
    higher = " and above" if any(load.value < other.value for other in data.loads) else ""
    return f"{_name(data, load)}{higher} {_verb(data, load, 'are', 'is')} beyond this server{keeps}"


def keeps_up(data: ReportData) -> float | None:
    """About the rate that a server with more to do than it can gives in the end; None where none was overloaded."""
    figures = [usable(data, load, "throughput_requests_per_s") for load in data.loads if overloaded(data, load)]
    return max((one.value for one in figures if one is not None and one.value), default=None)


def row_words(data: ReportData, load: LoadPoint) -> str:
    """What stands in the table in place of latencies that mean nothing; empty where the figures speak."""
    if not overloaded(data, load):
        return ""
    counts = outcome_counts(data)[load]
    says = endings(_lost(counts), sum(counts.values())) or "requests came faster than they were answered"
    good = usable(data, load, "good_fraction")
    if good is None or slo_words(data) == "none":
        return f"overloaded: {says}"
    return f"overloaded: {says}; {number(100 * (good.value or 0.0), 2)} % met the SLO"


def problem_words(data: ReportData) -> list[str]:
    """Everything that spoils or lacks: each kind of it once, in a few words."""
    out = []
    if not data.runs:
        out.append("no run came to an end")
    if missing := unfinished(data):
        out.append(f"{missing} were made")
    stopped = [(state(data, load).status, data.load_text(load)) for load in data.loads]
    if told := [(words, at) for words, at in stopped if words]:
        out.append(gathered([(f"{words} run{'' if words.startswith('1 ') else 's'}", at) for words, at in told]))
    out += _invalid(data)
    judged = [load for load in data.loads if not overloaded(data, load) and not no_evidence(data, load)]
    calm = {load: chosen_runs(data.runs_at(load)) for load in judged}
    some = [(sum(run.unstable for run in runs), len(runs), load) for load, runs in calm.items()]
    if piled := [f"{n} of {every} runs at {data.load_text(load)}" for n, every, load in some if n]:
        out.append(f"requests piled up in {', '.join(piled)}")
    out += _failed(data)
    if data.capacity is not None and data.capacity.limit == "client":
        out.append("this machine's client reached its own limit first; the server's lies higher")
    imported = sorted({run.origin for run in data.runs if run.origin.startswith("imported:")})
    if imported:
        out.append(f"{', '.join(imported)}: another tool measured this, and nobody judged how")
    return out


def _invalid(data: ReportData) -> list[str]:
    """INVALID runs: how many, why, and what became of them; each fate told once."""
    fates: dict[str, list[tuple[LoadPoint, Run]]] = {}
    for load in data.loads:
        for run in data.runs_at(load):
            if run.slow_client:
                fates.setdefault("figures that this moved by over 1 % are withheld", []).append((load, run))
            elif run.invalid:
                fates.setdefault("no evidence" if no_evidence(data, load) else "left out", []).append((load, run))
    out = []
    for fate, found in sorted(fates.items(), reverse=True):
        at = ", ".join(dict.fromkeys(data.load_text(load) for load, _ in found))
        many = f"{len(found)} run{' was' if len(found) == 1 else 's were'} invalid"
        out.append(f"{many} ({fate}) at {at}: {_why(run for _, run in found)}")
    return out


def _why(runs: Iterable[Run]) -> str:
    """The reasons, those that differ in numbers alone told once; the two most frequent."""
    reasons = [reason_words(reason) for run in runs for reason in run.validity_reasons]
    kinds: dict[str, list[str]] = {}
    for reason in reasons:
        kinds.setdefault(skeleton(reason), []).append(reason)
    told = sorted(kinds.values(), key=len, reverse=True)
    more = f" and {len(told) - 2} more" if len(told) > 2 else ""
    return ", ".join(plain(merged(one), 120) for one in told[:2]) + more if told else "no reason was given"


def _failed(data: ReportData) -> list[str]:
    """Requests that failed where the row doesn't say so, by how they ended, with the most frequent error."""
    counts = {load: one for load, one in outcome_counts(data).items() if not row_words(data, load)}
    lost: Counter[str] = Counter()
    for one in counts.values():
        lost.update(_lost(one))
    if not lost:
        return []
    at = [load for load, one in counts.items() if _lost(one)]
    often = next((plain(one.error, 80) for one in data.errors if one.error and one.load in at), None)
    where = "" if len(at) == len(data.loads) else f" at {', '.join(map(data.load_text, at))}"
    total = sum(sum(one.values()) for one in counts.values())
    words = endings(lost, total) + where
    if len(lost) > 1:
        ways = ", ".join(f"{n:,} {ended(name, n)}" for name, n in lost.most_common())
        words = f"{lost.total():,} of {total:,} requests failed{where}: {ways}"
    return [words + (f" (most often: {often})" if often else "")]


def _lost(counts: Mapping[str, int]) -> dict[str, int]:
    """Those that failed: neither ok nor cancelled as planned."""
    return {name: n for name, n in counts.items() if n and name not in (Outcome.OK, Outcome.CANCELLED)}


def requests_words(data: ReportData) -> str:
    """How many requests the figures are about, and how they ended, in words."""
    counts: Counter[str] = Counter()
    for one in outcome_counts(data).values():
        counts.update(one)
    if not (total := counts.total()):
        return "no request was scheduled in a window"
    ways = ", ".join(f"{n:,} {ended(name, n)}" for name, n in counts.most_common() if n)
    return f"{total:,} request{'' if total == 1 else 's'}: {ways}"


def outcome_counts(data: ReportData) -> Mapping[LoadPoint, Counter[str]]:
    """How the requests scheduled in the windows ended, load by load."""
    out: dict[LoadPoint, Counter[str]] = {load: Counter() for load in data.loads}
    for row in data.outcomes:
        if row.phase == Phase.MEASURE:
            out[row.load][row.outcome] += row.n
    return out


def caution_words(data: ReportData) -> list[str]:
    """What to be careful about, the most important first."""
    out = [*caution_notes(data), *_few_runs(data), *_unsettled(data), *count_notes(data)]
    if data.capacity is not None and data.capacity.reason:
        out.insert(0, data.capacity.reason)
    return out


def _few_runs(data: ReportData) -> list[str]:
    kept = [len(chosen_runs(data.runs_at(load))) for load in data.loads if data.runs_at(load)]
    if not kept or min(kept) > 2 or data.capacity is not None:
        return []
    which, what = ("one run", "this run only") if min(kept) == 1 else ("two runs", "these runs only")
    return [f"{which} a load point: the figures speak of {what}, how far runs differ isn't known"]


def _unsettled(data: ReportData) -> list[str]:
    """The table's figures that too little was measured for, and what would do."""
    short: list[tuple[str, str]] = []
    times: list[int] = []
    other: dict[str, list[tuple[str, str, str]]] = {}
    leaking = {one.load for one in data.leaks}
    for column in columns(data):
        for load in data.loads:
            figure = data.figure(load, column.figure)
            if figure is None or figure.settled or figure.value is None or load in leaking or overloaded(data, load):
                continue
            if no_evidence(data, load):
                continue
            if found := LONGER.search(figure.reason or ""):
                short.append((column.head, data.load_text(load)))
                times.append(int(found[1]))
            else:
                reason = figure.reason or "no reason was given"
                other.setdefault(skeleton(reason), []).append((column.head, data.load_text(load), reason))
    out = []
    if short:
        longest = f"run {max(times)} times as long" if max(times) < _LONGEST else "run far longer"
        out.append(f"too few requests for {gathered(short)} (marked ?): {longest}, or make 5 repeats")
    for told in other.values():
        where, reason = gathered([(head, at) for head, at, _ in told]), merged([reason for *_, reason in told])
        out.append(f"{where} (marked ?): {plain(reason, 160)}")
    return out


def next_words(data: ReportData, again: Again) -> str:
    """One command for what to do next; empty where there is nothing."""
    load = data.study.section("load")
    key = "load.concurrency" if data.mode == "closed" else "load.rates"
    counts = outcome_counts(data)
    if data.capacity is not None:
        advice = data.capacity.advice
        return f"{advice}." if advice else ""
    if any(run.origin.startswith("imported:") for run in data.runs):
        return ""
    if not data.runs or unfinished(data) or any(run.status != "complete" for run in data.runs):
        return f"run it again: {again.run()}"
    if not any(one[Outcome.OK] for one in counts.values()):
        return f"see what the server says, then run it again: {again.run()}"
    if all(run.useless for run in data.runs):
        return (
            f"what this machine's client can carry: {again.tool} calibrate; then lower the load, or give it --workers"
        )
    where = [standing(data, one) for one in data.loads]
    slo = slo_words(data) != "none"
    if Standing.BEYOND in where and (Standing.MET not in where or not slo):
        return f"try --set {key}={_lower(keeps_up(data), data)}" + (f", or {again.capacity()}" if slo else "")
    if not slo:
        return f"say what is good enough: {again.run('slo.ttft_ms=1000', 'slo.tpot_ms=100')}"
    if Standing.MET in where and where[-1] in (Standing.BEYOND, Standing.MISSED, Standing.OPEN):
        return again.capacity()
    if Standing.UNKNOWN in where or _few_runs(data) or _unsettled(data):
        return again.run(*_more(data, load))
    if Standing.MET not in where:
        return f"try --set {key}={_lower(None, data)}, or {again.capacity()}"
    return f"how much more it bears: {again.capacity()}"


def _more(data: ReportData, load: Mapping[str, object]) -> list[str]:
    """What to set for figures that settle: more repeats where they are few, else longer runs."""
    if (repeats := load.get("repeats")) is None or not isinstance(repeats, int) or repeats < 5:
        return ["load.repeats=5"]
    times = [
        int(found[1])
        for column in columns(data)
        for one in data.loads
        if (f := data.figure(one, column.figure)) is not None and (found := LONGER.search(f.reason or ""))
    ]
    factor = min(max(times, default=2), 10)
    for key in ("duration_s", "count"):
        value = load.get(key)
        if isinstance(value, int | float):
            return [f"load.{key}={factor * value:g}"]
    return ["load.repeats=10"]


def _lower(rate: float | None, data: ReportData) -> str:
    """Three lower loads than one that was too much."""
    top = rate or min((load.value for load in data.loads if _finite(load)), default=1.0) / 2
    parts = [top * part for part in (0.25, 0.5, 0.75)]
    if data.mode == "closed":
        return f"[{','.join(map(str, sorted({max(1, int(users)) for users in parts})))}]"
    return f"[{','.join(_two_digits(rate) for rate in parts)}]"


def _two_digits(rate: float) -> str:
    return f"{float(f'{rate:.2g}'):g}"


def _finite(load: LoadPoint) -> bool:
    return math.isfinite(load.value)


def _name(data: ReportData, load: LoadPoint) -> str:
    """A load in a sentence, without its arm."""
    return data.load_text(LoadPoint(load.value))


def _offered(data: ReportData, load: LoadPoint) -> str:
    return f"at {_name(data, load)}" if _finite(load) else "with all requests at once"


def _verb(data: ReportData, load: LoadPoint, many: str, one: str) -> str:
    """A verb after a load: 4 users meet, 2 req/s meets."""
    return many if data.mode == "closed" and load.value != 1 else one


def _share_words(data: ReportData, load: LoadPoint) -> str:
    good = usable(data, load, "good_fraction")
    assert good is not None
    if good.lo is None or good.hi is None:
        return f"at most {_percent(good.hi or 0.0, up=True)}" if good.lo is None else f"at least {_percent(good.lo)}"
    return f"{_percent(good.lo).removesuffix(' %')} to {_percent(good.hi, up=True)}"


def _percent(share: float, *, up: bool = False) -> str:
    """A bound in per cent, rounded outwards; whole ones but near the ends."""
    scale = 10 if share > 0.99 or share < 0.01 else 1
    value = (math.ceil if up else math.floor)(round(100 * scale * share, 6)) / scale
    return f"{value:g} %"
