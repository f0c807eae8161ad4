"""Which drawings a report has, in which order, and what it says about each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfbench.report.curves import curve_drawings, with_capacity
from tfbench.report.drawing import Drawing, Scale, marked_simulated
from tfbench.report.escape import plain
from tfbench.report.judged import chosen_runs
from tfbench.report.load_drawings import Series, against_load, quantiles
from tfbench.report.model import Figure, ReportData, Run
from tfbench.report.share_drawings import cdf_drawing, outcomes_drawing

Limits = tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Section:
    """A heading of the page with its drawings."""

    key: str
    title: str
    lead: str
    drawings: tuple[Drawing, ...]


def slo_limits(data: ReportData, term: str) -> Limits:
    """A manifest SLO term as (limit in ms, words): a number, {max = …} or {pNN = …}. Each request must meet it."""
    value = data.study.section("slo").get(f"{term}_ms")
    limits = value if isinstance(value, Mapping) else {"max": value}
    return tuple(
        (float(limit), f"SLO{'' if name == 'max' else f': each {name.upper()}'} ≤ {limit:,.6g} ms")
        for name, limit in limits.items()
        if isinstance(limit, int | float) and not isinstance(limit, bool)
    )


def slo_words(data: ReportData) -> str:
    """All SLO terms on one line."""
    names = {"ttft": "TTFT", "tpot": "TPOT", "icl": "ICL", "e2e": "E2E"}
    terms = [
        (name, words.removeprefix("SLO").removeprefix(":").strip())
        for term, name in names.items()
        for _, words in slo_limits(data, term)
    ]
    return ", ".join(f"{name} {words}" for name, words in terms) or "none"


def sections(data: ReportData) -> tuple[Section, ...]:
    """Every drawing of the page."""
    parts = _sections(data)
    if not data.simulated:
        return parts
    return tuple(replace(part, drawings=tuple(map(marked_simulated, part.drawings))) for part in parts)


def _sections(data: ReportData) -> tuple[Section, ...]:
    curves = curve_drawings(data)
    operating = Section(
        "operating",
        "Operating curve",
        "What the system can be asked for, and what it then costs each user. Boxes and bands are intervals.",
        curves,
    )
    return (
        *((operating,) if curves or data.capacity is not None else ()),
        Section(
            "latency",
            "Latency against load",
            "Response latency runs from the scheduled time, so waits the client or the server caused are in it. "
            "Quantiles run over all counted attempts: a failed one counts as infinite.",
            tuple(with_capacity(data, one) for one in _latency(data)),
        ),
        Section(
            "work",
            "Goodput and cost against load",
            f"An attempt is good when it ended ok, met every SLO term ({slo_words(data)}) and passed the quality judge"
            + ("." if data.study.judged else " (none was named: quality not judged)."),
            tuple(with_capacity(data, one) for one in _work(data)),
        ),
        Section(
            "distributions",
            "Distributions",
            "The whole distribution at each load point, not only its quantiles.",
            _distributions(data),
        ),
        Section("outcomes", "Outcomes", "", (outcomes_drawing(data),)),
        # In virtual time the client is never late, and nothing measures it.
        *(() if data.all_simulated else (_client(data),)),
    )


def _client(data: ReportData) -> Section:
    return Section(
        "client",
        "The client's own part",
        "How late the client itself was. Lag means the load was not what the manifest says.",
        (client_lag(data),),
    )


def _latency(data: ReportData) -> tuple[Drawing, ...]:
    wanted = (
        ("ttft", "Time to first token", "First visible chunk − scheduled time.", "TTFT, ms", "attempts"),
        (
            "tpot",
            "Time per output token",
            "(Last − first chunk) ÷ (output tokens − 1), per request.",
            "TPOT, ms",
            "attempts",
        ),
        ("icl", "Inter-chunk latency", "Gaps between adjacent output chunks.", "ICL, ms", "gaps"),
        ("e2e", "End to end", "End − scheduled time.", "E2E, ms", "attempts"),
    )
    return tuple(
        against_load(data, stem, title, lead, quantiles(stem), y_title, limits=slo_limits(data, stem), n_words=n_words)
        for stem, title, lead, y_title, n_words in wanted
    )


def _work(data: ReportData) -> tuple[Drawing, ...]:
    currency = plain(data.study.section("cost").get("currency") or "", 12)
    open_loop = data.mode != "closed"
    return (
        against_load(
            data,
            "goodput",
            "Goodput and throughput",
            "Requests that ended in the window per second: all, and the good ones."
            + (" The dashed line is what was offered." if open_loop else ""),
            (
                Series("throughput_requests_per_s", "throughput", "s1", "circle"),
                Series("goodput_requests_per_s", "goodput", "s4", "square"),
            ),
            "requests/s",
            diagonal=open_loop,
        ),
        against_load(
            data,
            "good-fraction",
            "Good fraction",
            "Good ÷ counted attempts scheduled in the window.",
            (Series("good_fraction", "good fraction", "s4", "square"),),
            "share of attempts",
            scale=Scale(0.0, 1.04, False, full=1.0),
            y_more={"tickformat": ".0%"},
        ),
        against_load(
            data,
            "cost",
            "Cost per million qualified tokens",
            "The whole window's cost ÷ output tokens of good attempts. Idle and failed time is paid for.",
            (Series("cost_per_million_qualified_tokens", "cost", "s2", "diamond"),),
            f"{currency} per million tokens".strip(),
        ),
        against_load(
            data,
            "tokens",
            "Output tokens",
            "Output tokens of attempts that ended in the window per second: all, and those of good attempts.",
            (
                Series("throughput_output_tokens_per_s", "all", "s1", "circle"),
                Series("qualified_output_tokens_per_s", "qualified", "s4", "square"),
            ),
            "tokens/s",
        ),
    )


def _distributions(data: ReportData) -> tuple[Drawing, ...]:
    wanted = {"ttft": "attempts", "tpot": "attempts", "icl": "gaps", "e2e": "attempts"}
    return tuple(
        cdf_drawing(data, metric, metric.upper(), "", limits=slo_limits(data, metric), n_words=n_words)
        for metric, n_words in wanted.items()
    )


def client_lag(data: ReportData) -> Drawing:
    """Client lag against load with the validity limit."""
    limits = {s.limit for run in data.runs for s in run.signals if "client_lag" in s.name and s.limit is not None}
    marks: Limits = tuple((limit, f"limit for P99: {limit:,.6g} ms") for limit in sorted(limits))
    return against_load(
        data,
        "client-lag",
        "Client lag",
        "(Dispatched − due) + (sent − ready). Crosses are runs judged INVALID; no other drawing has them.",
        quantiles("client_lag"),
        "client lag, ms",
        limits=marks,
    )


@dataclass(frozen=True)
class Best:
    """The highest goodput of an arm, with the good fraction and cost there; `last`: no higher load was offered it."""

    goodput: Figure
    good_fraction: Figure | None
    cost: Figure | None
    last: bool


def best(data: ReportData) -> tuple[Best, ...]:
    """Of each arm that has one: the highest goodput of a load point whose figures rest on VALID, stable runs."""
    return tuple(found for arm in data.arms or (None,) if (found := _best(data, arm)) is not None)


def _best(data: ReportData, arm: str | None) -> Best | None:
    loads = [load for load in data.loads if load.arm == arm]
    fit = [load for load in loads if _is_evidence(chosen_runs(data.runs_at(load)))]
    goodputs = [data.figure(load, "goodput_requests_per_s") for load in fit]
    found = [(f.value, f) for f in goodputs if f is not None and f.value is not None and f.settled]
    if not found:
        return None
    top = max(found, key=lambda pair: pair[0])[1]
    good, cost = (data.figure(top.load, name) for name in ("good_fraction", "cost_per_million_qualified_tokens"))
    return Best(top, good, cost, last=len(loads) > 1 and top.load == loads[-1])


def _is_evidence(runs: Sequence[Run]) -> bool:
    return bool(runs) and all((run.validity or "").lower() == "valid" and not run.unstable for run in runs)
