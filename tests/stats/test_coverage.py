"""How often the intervals hold the truth, on queues whose truth is exact. Seeds are fixed, so floors are too.

The full study is `benchmarks/coverage_study.py`; labels come from `benchmarks/coverage_labels.py`. Floors lie two or
three standard errors of the replications here below what those measured.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import coverage_cells, coverage_engine, coverage_study
from benchmarks.coverage_labels import (
    Cell,
    fraction_case,
    gap_case,
    goodput_case,
    labels,
    measure,
    no_events_cell,
    quantile_case,
)
from benchmarks.coverage_methods import AS_PRINTED, LOADGEN, MEAN_OF_RUNS, PAIRED
from benchmarks.coverage_processes import asked
from benchmarks.coverage_study import Part, Tally
from benchmarks.coverage_tables import BEGIN, DOCS, END
from benchmarks.queues import (
    EXPONENTIAL,
    HEAVY,
    limit,
    many_servers,
    many_servers_limit,
    product_tail_quantile,
    queue,
    traffic,
)
from tfbench.stats.labels import LEAST, MEASURED, approximate, withheld
from tfbench.stats.quantile import rank_interval


def studied(
    cell: coverage_cells.Cell, replications: int, ks: tuple[int, ...], tapes: list[coverage_engine.Tape] | None = None
) -> dict[tuple[int, str], Tally]:
    part = Part(cell, ks, replications, (7,))
    return coverage_study.measure(part, coverage_cells.case(cell, tapes), only=(AS_PRINTED, PAIRED))


@pytest.fixture(scope="module")
def tapes() -> dict[float, list[coverage_engine.Tape]]:
    return {
        load: [coverage_engine.record(load, n, (7,), paired=load < 0.8)] for load, n in ((0.5, 30_000), (0.8, 40_000))
    }


# The n that plans ask for, as docs/statistics.md has it (a plan takes a pilot of millions).
@pytest.mark.parametrize(
    ("system", "figure", "load", "n", "replications"),
    [
        (EXPONENTIAL.name, "p50", 0.5, 235, 150),
        (EXPONENTIAL.name, "p95", 0.5, 3329, 100),
        (EXPONENTIAL.name, "gap p95", 0.5, 931, 80),
        (EXPONENTIAL.name, "good fraction 0.999", 0.5, 19154, 60),
        (EXPONENTIAL.name, "goodput", 0.5, 376, 150),
        (EXPONENTIAL.name, "cost per token", 0.5, 376, 150),
        (EXPONENTIAL.name, "p95 ratio", 0.5, 3826, 150),
        (coverage_cells.MANY_SERVERS, "p50", 0.8, 2299, 100),
        (coverage_cells.MANY_SERVERS, "good fraction 0.9", 0.8, 3573, 100),
    ],
)
def test_the_study_at_the_planned_n(system: str, figure: str, load: float, n: int, replications: int) -> None:
    (tally,) = studied(coverage_cells.Cell(system, figure, load, n, n), replications, (5,)).values()
    assert tally.printed >= 0.93 * replications
    assert tally.held >= 0.89 * tally.printed


@pytest.mark.parametrize(
    ("figure", "load", "n"),
    [
        ("p50", 0.5, 156),
        ("good fraction 0.99", 0.5, 734),
        ("goodput", 0.5, 186),
        ("p95 ratio", 0.5, 1780),
        ("p50", 0.8, 414),
        ("cost per token", 0.8, 932),
    ],
)
def test_the_study_on_the_reference_engine(
    figure: str, load: float, n: int, tapes: dict[float, list[coverage_engine.Tape]]
) -> None:
    cell = coverage_cells.Cell(coverage_cells.ENGINE, figure, load, n, n)
    (tally,) = studied(cell, 120, (5,), tapes[load]).values()
    assert tally.printed >= 0.93 * tally.replications
    assert tally.held >= 0.88 * tally.printed


def test_plans_of_the_reference_engine_are_read_from_its_pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="folder of its pilots"):
        coverage_cells.plan(coverage_cells.ENGINE, "p50", 0.5)
    monkeypatch.setattr(coverage_engine, "TAPE", 20_000)
    monkeypatch.setattr(coverage_engine, "TAPES", {0.5: 2})
    monkeypatch.setattr(coverage_engine, "PAIRED", {0.5: 1})
    for slower in (1.0, coverage_engine.SLOWER):
        coverage_engine.write_pilot(tmp_path, 0.5, slower, 0)
    for index in (0, 1):
        coverage_engine.write(tmp_path, 3, 0.5, index)
    (pilot,) = coverage_engine.read_pilot(tmp_path, 0.5, 1.0)
    assert len(pilot) == 20_000 - coverage_engine.GAP
    first, second = coverage_engine.read(tmp_path, 3, 0.5)
    assert (len(first.ttft), len(first.slower_ttft), len(second.slower_ttft)) == (20_000, 20_000, 0)
    cells = coverage_cells.cells_at(
        systems=[coverage_cells.ENGINE], figures=["p50", "p95", "p95 ratio"], loads=[0.5], folder=tmp_path
    )
    p50, p95, ratio = (cell.planned for cell in cells)
    assert 100 < p50 < 200 and 1000 < p95 < 2500
    # Planned for the candidate, whose load is higher.
    assert ratio > p95


def test_short_runs_print_few_quantiles() -> None:
    found = studied(coverage_cells.Cell(EXPONENTIAL.name, "p95", 0.5, 3329 // 40, 3329), 100, (3,))
    assert found[3, AS_PRINTED].printed <= 5


# How many replications, and the floor of the coverage: three standard errors of them below 0.95, or thereabouts.
CLAIMS = {
    ("hit 0.951", "p95", 420): (100, 0.90),  # a gap in the distribution, right at the quantile
    ("hit 0.52", "p50", 61): (150, 0.91),
    ("M/M/1 0.5 in steps of 10 ms", "p95", 3405): (60, 0.88),  # a step right at the quantile
    ("M/M/1 0.6", "p95", 1200): (100, 0.90),  # carried by all runs together only
    ("M/M/1 0.6, rate drifting ±50%", "p50", 6000): (60, 0.88),
    ("lognormal, restart CV 5%", "p50", 5000): (100, 0.89),
}


@pytest.mark.parametrize("key", CLAIMS, ids=lambda key: f"{key[0]} {key[1]}")
def test_what_real_serving_shows_is_covered(key: tuple[str, str, int]) -> None:
    replications, floor = CLAIMS[key]
    system, figure, n = key
    found = studied(coverage_cells.Cell(system, figure, 0.0, n, n), replications, (5, 10))
    for k in (5, 10):
        tally = found[k, AS_PRINTED]
        assert tally.printed >= 0.93 * replications
        assert tally.held >= floor * tally.printed


def test_means_of_the_runs_quantiles_fail_where_ranks_by_shares_are_used() -> None:
    # The measure has teeth: with ten repeats the geometric mean of the runs' P95 misses a gap more often than not.
    cell = coverage_cells.Cell("hit 0.951", "p95", 0.0, 420, 420)
    part = Part(cell, (10,), 100, (7,))
    (tally,) = coverage_study.measure(part, coverage_cells.case(cell), only=(MEAN_OF_RUNS,)).values()
    assert tally.held < 0.8 * tally.printed


def test_bursts_of_failures_are_bounded_on_both_sides_only_where_enough_were_seen() -> None:
    cell = coverage_cells.Cell("M/M/1 0.3, 0.5% fail in bursts of 50", "answered", 0.0, 1200, 1200)
    tally = studied(cell, 150, (10,))[10, AS_PRINTED]
    assert tally.printed < 0.3 * tally.replications
    assert tally.held >= 0.85 * tally.printed


@pytest.mark.parametrize("key", [key for key in asked() if asked()[key].process.name != "independent"])
def test_the_truths_of_processes_are_true(key: tuple[str, str, int]) -> None:
    one = asked()[key]
    drawn = one.process.draw(np.random.default_rng(13), 200, min(one.n, 2000))
    if "drifting" in one.process.name or "leaks" in one.process.name:
        drawn = one.process.draw(np.random.default_rng(13), 100, one.n)
    if "leaks" in one.process.name:
        drawn = drawn[:, one.n // 2 :]  # the steady truth
    p = 0.9 if one.figure == "answered" else float(one.figure[1:]) / 100
    edge = one.process.quantile(p, one.n)
    below, upto = (float(np.mean(drawn < edge * (1 - 1e-9)))), float(np.mean(drawn <= edge * (1 + 1e-9)))
    assert below - 0.02 <= p <= upto + 0.02


def test_early_stopping_fails_where_queries_wait_for_each_other() -> None:
    cell = coverage_cells.Cell(EXPONENTIAL.name, "p95", 0.8, 3000, 3000)
    (tally,) = coverage_study.measure(Part(cell, (1,), 150, (7,)), coverage_cells.case(cell), only=(LOADGEN,)).values()
    # 99 % is meant.
    assert tally.held < 0.8 * tally.printed


def test_the_lines_of_the_study() -> None:
    cell = coverage_cells.Cell(EXPONENTIAL.name, "p50", 0.5, 40, 170)
    first, *_ = coverage_study.lines(cell, {(5, "m"): Tally(10, 4, 3, 2.0), (1, "m"): Tally(10, 0, 0, 0.0)})
    assert list(first)[:7] == ["figure", "load", "k", "method", "coverage", "printed_share", "mean_width"]
    assert (first["k"], first["coverage"], first["printed_share"], first["mean_width"]) == (1, None, 0.0, None)
    *_, last = coverage_study.lines(cell, {(5, "m"): Tally(10, 4, 3, 2.0)})
    assert (last["coverage"], last["printed_share"], last["mean_width"], last["planned_n"]) == (0.75, 0.4, 0.5, 170)


def row(**changes: object) -> dict[str, object]:
    known = {"figure": "p95", "system": "M/M/1", "load": 0.5, "k": 5, "method": AS_PRINTED, "n": 9, "planned_n": 9}
    return {**known, "coverage": 0.95, "printed_share": 1.0, "replications": 1000, **changes}


def test_the_study_tells_where_it_falls_short() -> None:
    within = [
        row(),
        # Three standard errors of 1,000 replications below 0.93 and 0.95 are 0.906 and 0.929.
        row(coverage=0.907),
        row(printed_share=0.930),
        row(coverage=0.80, k=3),
        row(coverage=0.80, method="t on log of runs, unguarded"),
        row(coverage=0.80, planned_n=20),
    ]
    assert coverage_study.shortfalls(within) == []
    assert coverage_study.shortfalls([row(coverage=0.905), row(method=PAIRED, k=10, coverage=0.9)]) == [
        "p95 of M/M/1 at load 0.5, K = 5: covers 0.905, floor 0.93",
        "p95 of M/M/1 at load 0.5, K = 10: covers 0.900, floor 0.93",
    ]
    # Four times as many replications make the floor sharper.
    assert len(coverage_study.shortfalls([row(coverage=0.912, replications=4000)])) == 1
    never = coverage_study.shortfalls([row(printed_share=0.0, coverage=None)])
    assert never == ["p95 of M/M/1 at load 0.5, K = 5: printed in 0.000, floor 0.95"]


def test_the_written_tables_hold_what_is_asked_of_five_repeats() -> None:
    table = DOCS.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    found = [line.split("|") for line in table.splitlines() if re.match(r"\| [^|]+ \| (M/|reference)", line)]
    written = {(cells[1].strip(), cells[2].strip(), float(cells[3])) for cells in found}
    asked = {
        (figure, system, load)
        for figure in coverage_cells.FIGURES
        for system in coverage_cells.SYSTEMS
        for load in coverage_cells.LOADS
        if coverage_cells.is_asked(figure, system, load)
    }
    assert written == asked and len(found) == len(asked) == 63
    for coverage, share in (cell.split("/") for cells in found for cell in cells[-3:-1]):
        assert float(coverage) >= 93.0
        assert float(share) >= 95


@pytest.mark.parametrize("service", [EXPONENTIAL, HEAVY])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_truths_are_true(service: object, load: float) -> None:
    assert isinstance(service, type(HEAVY))
    rng = np.random.default_rng(11)
    drawn = traffic(rng, 400, 1000, load, service)
    for p in (0.5, 0.95):
        edge = limit(p, load, service)
        assert np.mean(drawn.response <= edge) == pytest.approx(p, abs=0.01)
        # In steady state from the first attempt on.
        assert np.mean(drawn.response[:, 0] <= edge) == pytest.approx(p, abs=0.08)
        gaps = drawn.response * rng.exponential(size=drawn.response.shape)
        assert np.mean(gaps <= product_tail_quantile(p, load, service)) == pytest.approx(p, abs=0.01)
    assert drawn.service.mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.75), (16, 0.8)])
def test_the_truths_of_many_servers_are_true(servers: int, load: float) -> None:
    drawn = many_servers(np.random.default_rng(12), 2000, 300, servers, load)
    for p in (0.5, 0.95):
        edge = many_servers_limit(p, servers, load)
        assert np.mean(drawn <= edge) == pytest.approx(p, abs=0.01)
        assert np.mean(drawn[:, 0] <= edge) == pytest.approx(p, abs=0.03)
        if servers == 1:
            assert edge == pytest.approx(limit(p, load))


def run(case: object, figure: str, load: float, n: int, k: int, replications: int = 200) -> Cell:
    truth, draw = case  # type: ignore[misc]
    return measure(figure, load, n, k, truth, draw, seed=7, replications=replications)


@pytest.mark.parametrize(
    ("p", "load", "n", "floor"),
    [(0.5, 0.8, 3000, 0.90)],
)
def test_five_runs_hold_a_settled_quantile(p: float, load: float, n: int, floor: float) -> None:
    cell = run(quantile_case(p, load, n, 5), "quantile", load, n, 5)
    assert cell.printed_share >= 0.95
    assert cell.coverage is not None and cell.coverage >= floor


@pytest.mark.parametrize(
    ("p", "load", "n", "k"), [(0.95, 0.8, 600, 1), (0.99, 0.8, 600, 2), (0.95, 0.5, 300, 1), (0.95, 0.8, 600, 5)]
)
def test_an_unsettled_quantile_shows_a_lower_bound_that_holds(p: float, load: float, n: int, k: int) -> None:
    n = n // 5 if k == 5 else n  # five runs carry it together
    cell = run(quantile_case(p, load, n, k), "quantile", load, n, k, 100)
    assert cell.printed_share <= 0.05
    assert cell.near_bound_share >= 0.95
    assert cell.near_bound_coverage is not None and cell.near_bound_coverage >= 0.93


@pytest.mark.parametrize(
    ("share", "n", "load"),
    [(0.01, 90, 0.8), (0.5, 600, 0.8), (0.9, 90, 0.5), (0.99, 600, 0.5), (0.999, 600, 0.8), (0.9999, 90, 0.8)],
)
def test_five_runs_hold_a_good_fraction(share: float, n: int, load: float) -> None:
    cell = run(fraction_case(share, load, n, 5, True), "fraction", load, n, 5)
    held = (cell.coverage or 0.0) * cell.printed_share + (cell.near_bound_coverage or 0.0) * cell.near_bound_share
    assert cell.printed_share + cell.near_bound_share == pytest.approx(1.0)
    assert held >= 0.92


@pytest.mark.parametrize(("load", "floor"), [(0.5, 0.91), (0.8, 0.88)])
@pytest.mark.parametrize("tokens", [False, True])
def test_five_runs_hold_goodput_and_cost(load: float, floor: float, tokens: bool) -> None:
    cell = run(goodput_case(0.9, load, 300, 5, tokens), "goodput", load, 300, 5, 300)
    assert cell.printed_share == 1.0
    assert cell.coverage is not None and cell.coverage >= floor


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_approximate_fallbacks_hold_what_their_labels_say(k: int, load: float) -> None:
    cells = {
        "quantile": run(quantile_case(0.5, load, 6000, k), "quantile", load, 6000, k, 100),
        "gaps": run(gap_case(0.5, load, 3000, k), "gaps", load, 3000, k, 60),
        "fraction": run(fraction_case(0.9, load, 1000, k, True), "fraction", load, 1000, k),
        "ratio": run(goodput_case(0.9, load, 300, k, False), "goodput", load, 300, k),
    }
    for figure, cell in cells.items():
        worst, best = MEASURED[figure, k]
        if cell.coverage is None or cell.printed_share < 0.25:
            assert figure in ("quantile", "gaps") and load == 0.8
            continue
        # Four standard errors of 60 replications at 93 % are 13 points.
        assert 100 * cell.coverage >= worst - 13, figure
        assert best > worst
    unseen = no_events_cell(load, 300, k, seed=7, replications=200)
    assert unseen.near_bound_coverage is not None
    assert 100 * unseen.near_bound_coverage >= MEASURED["no events, one bound", k][0] - 8


def test_every_label_the_code_asks_for_was_measured() -> None:
    kinds = ("quantile", "gaps", "fraction", "fraction, no score")
    alone = [f"{kind}, one bound" for kind in (*kinds, "no events")]
    assert set(MEASURED) == {(kind, k) for kind in (*kinds, "ratio", *alone) for k in (1, 2)}


def test_what_holds_too_rarely_is_withheld() -> None:
    assert LEAST == 90
    for (figure, k), (worst, _) in MEASURED.items():
        assert (withheld(figure, k) is None) == (worst >= 90)


def test_the_textbook_interval_fails_where_ours_is_used() -> None:
    # The measure has teeth: independent ranks on the same queue hold the truth about one time in five.
    _, response = queue(np.random.default_rng(7), 200, 3000, 0.8)
    low, high = rank_interval(3000, 0.95)
    assert low is not None and high is not None
    truth = limit(0.95, 0.8)
    ordered = np.sort(response, axis=1)
    held = (ordered[:, low - 1] <= truth) & (truth <= ordered[:, high - 1])
    assert held.mean() < 0.35


def test_other_levels_are_not_called_measured() -> None:
    assert approximate("x", 1, "ratio", 0.95).startswith(
        "approximate: x (K=1, within this run only), measured coverage ≈ "
    )
    assert approximate("x", 1, "ratio", 0.9) == "approximate: x (K=1, within this run only), coverage not measured"
    # Nobody measured more runs than two that show no spread.
    assert approximate("x", 5, "ratio", 0.95).endswith("(K=5, no spread between runs), coverage not measured")


def test_labels_take_the_worst_and_the_best_cell() -> None:
    def cell(coverage: float, printed: float, k: int = 1) -> Cell:
        return Cell("M/M/1", "p50", 0.5, 100, k, 100, printed, coverage, 1 - printed, 0.99, 1.0)

    got = labels([("quantile", cell(0.9, 1.0)), ("quantile", cell(0.958, 0.7)), ("quantile", cell(0.1, 0.2))])
    assert got == [
        {"label": "quantile", "k": 1, "worst": 90, "best": 95},
        {"label": "quantile, one bound", "k": 1, "worst": 99, "best": 99},
    ]
