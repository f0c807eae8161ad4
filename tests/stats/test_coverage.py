"""How often the intervals hold the truth, on M/M/1 queues whose truth is exact. Seeds are fixed, so floors are too.

The full study, from which the labels come, is `benchmarks/coverage_labels.py`. Floors lie two or three standard errors
of 200 to 300 replications below what it measured.
"""

import numpy as np
import pytest

from benchmarks.coverage_labels import (
    Cell,
    fraction_case,
    gap_case,
    goodput_case,
    labels,
    limit,
    measure,
    no_events_cell,
    quantile_case,
    queue,
)
from tfbench.stats.labels import MEASURED, approximate
from tfbench.stats.quantile import rank_interval


def run(case: object, figure: str, load: float, n: int, k: int, replications: int = 200) -> Cell:
    truth, draw = case  # type: ignore[misc]
    return measure(figure, load, n, k, truth, draw, seed=7, replications=replications)


@pytest.mark.parametrize(
    ("p", "load", "n", "floor"),
    [(0.5, 0.5, 300, 0.90), (0.5, 0.8, 3000, 0.90), (0.95, 0.5, 3000, 0.90)],
)
def test_five_runs_hold_a_settled_quantile(p: float, load: float, n: int, floor: float) -> None:
    cell = run(quantile_case(p, load, n, 5), "quantile", load, n, 5)
    assert cell.printed_share >= 0.95
    assert cell.coverage is not None and cell.coverage >= floor


@pytest.mark.parametrize(("p", "load", "n"), [(0.95, 0.8, 600), (0.99, 0.8, 600), (0.95, 0.5, 300)])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_an_unsettled_quantile_shows_a_lower_bound_that_holds(p: float, load: float, n: int, k: int) -> None:
    cell = run(quantile_case(p, load, n, k), "quantile", load, n, k, 100)
    assert cell.printed_share <= 0.05
    assert cell.near_bound_share >= 0.95
    assert cell.near_bound_coverage is not None and cell.near_bound_coverage >= 0.93


@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize("n", [90, 600])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999])
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
        "quantile": run(quantile_case(0.5, load, 3000, k), "quantile", load, 3000, k, 100),
        "gaps": run(gap_case(0.5, load, 1000, k), "gaps", load, 1000, k, 100),
        "fraction": run(fraction_case(0.9, load, 1000, k, True), "fraction", load, 1000, k),
        "ratio": run(goodput_case(0.9, load, 300, k, False), "goodput", load, 300, k),
    }
    for figure, cell in cells.items():
        assert cell.coverage is not None
        worst, best = MEASURED[figure, k]
        # Four standard errors of 100 replications at 90 % are 12 points.
        assert 100 * cell.coverage >= worst - 12, figure
        assert best > worst >= 50
    unseen = no_events_cell(load, 300, k, seed=7, replications=200)
    assert unseen.near_bound_coverage is not None
    assert 100 * unseen.near_bound_coverage >= MEASURED["no events, one bound", k][0] - 8


def test_every_label_the_code_asks_for_was_measured() -> None:
    alone = [f"{kind}, one bound" for kind in ("quantile", "gaps", "fraction", "no events")]
    kinds = ("quantile", "gaps", "fraction", "ratio", *alone)
    assert set(MEASURED) >= {(kind, k) for kind in kinds for k in (1, 2)}


def test_the_textbook_interval_fails_where_ours_is_used() -> None:
    # The measure has teeth: independent ranks on the same queue hold the truth about one time in five.
    _, response = queue(np.random.default_rng(7), 200, 3000, 0.8)
    low, high = rank_interval(3000, 0.95)
    assert low is not None and high is not None
    truth = limit(0.95, 0.8)
    ordered = np.sort(response, axis=1)
    held = (ordered[:, low - 1] <= truth) & (truth <= ordered[:, high - 1])
    assert held.mean() < 0.35


def test_simulated_response_times_are_exponential() -> None:
    _, response = queue(np.random.default_rng(8), 2000, 50, 0.8)
    assert np.mean(response[:, 0] <= limit(0.9, 0.8)) == pytest.approx(0.9, abs=0.03)
    assert np.mean(response[:, -1] <= limit(0.9, 0.8)) == pytest.approx(0.9, abs=0.03)


def test_other_levels_are_not_called_measured() -> None:
    assert approximate("x", 1, "ratio", 0.95).startswith("approximate: x (K=1), measured coverage ≈ ")
    assert approximate("x", 1, "ratio", 0.9) == "approximate: x (K=1), coverage not measured"


def test_labels_take_the_worst_and_the_best_cell() -> None:
    def cell(coverage: float, printed: float, k: int = 1) -> Cell:
        return Cell("p50", 0.5, 100, k, 100, printed, coverage, 1 - printed, 0.99, 1.0)

    got = labels([("quantile", cell(0.9, 1.0)), ("quantile", cell(0.958, 0.7)), ("quantile", cell(0.1, 0.2))])
    assert got == [
        {"label": "quantile", "k": 1, "worst": 90, "best": 95},
        {"label": "quantile, one bound", "k": 1, "worst": 99, "best": 99},
    ]
