"""Forest plots of comparisons and gates: what is drawn where, and that names from outside stay text."""

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.pages import Page, chromium, injected, opened
from tests.report.test_side_by_side import ARM, BLANK, HOSTILE, RATE, RESULT, ROW, compared
from tfbench.core.jsonio import dump_text
from tfbench.report.drawing import Drawing
from tfbench.report.effects import comparison_page, forests, gate_page
from tfbench.report.escape import plain
from tfbench.report.theme import THEMES, fill
from tfbench.verdict.compare import CompareArm, CompareLoad, Comparison

POINTS = dataclasses.replace(
    ROW, figure="good_fraction", unit="1", direction="higher", scale="difference", limit=-0.05, effect=-0.06,
    lo=-0.09, hi=-0.03,
)  # fmt: skip


def drawn(*rows: Any) -> list[Drawing]:
    return forests([(row, getattr(row, "verdict", None) or row.says) for row in rows], "caption")


def traces(drawing: Drawing) -> dict[str, Any]:
    assert drawing.spec is not None
    return {trace.get("name", "bounds"): trace for trace in drawing.spec["data"]}


def test_rows_of_one_scale_and_direction_share_a_plot_worst_first() -> None:
    slower = dataclasses.replace(ROW, bucket=None, bucket_by=None, effect=1.3, lo=1.2, hi=1.4)
    fine = dataclasses.replace(slower, figure="ttft_p50_ms", verdict="PASS", effect=0.9, lo=0.8, hi=1.0)
    one, two, three = drawn(slower, RATE, fine, POINTS)
    assert one.spec is not None
    assert one.spec["layout"]["yaxis"]["ticktext"] == ["e2e_p95_ms · load inf", "ttft_p50_ms · load inf"]
    top, bottom = one.spec["layout"]["yaxis"]["range"]
    assert top > bottom, "the first row is the topmost"
    parts = traces(one)
    assert parts["FAIL"]["x"] == [pytest.approx(math.log(1.3))] and parts["PASS"]["y"] == [1]
    assert parts["limit"]["x"] == [pytest.approx(math.log(1.05))] * 2
    assert parts["bounds"]["x"][:2] == [pytest.approx(math.log(x)) for x in (1.2, 1.4)]
    assert "worse to the right" in one.lead and "worse to the left" in two.lead and "worse to the left" in three.lead
    assert traces(three)["FAIL"]["x"] == [pytest.approx(-6.0)] and "percentage points" in three.title
    assert parts["FAIL"]["marker"]["symbol"] != parts["PASS"]["marker"]["symbol"], "not by colour alone"


def test_an_open_end_is_an_arrow_at_the_edge_and_no_bound_is_no_line() -> None:
    [one] = drawn(ROW, dataclasses.replace(ROW, effect=1.0, lo=None, hi=None))
    assert one.spec is not None
    bounds = traces(one)["bounds"]
    _, right = one.spec["layout"]["xaxis"]["range"]
    assert bounds["x"] == [pytest.approx(math.log(1.2)), right, None] and bounds["y"] == [0, 0, None]
    assert bounds["marker"]["symbol"][:2] == ["line-ns", "triangle-right"]
    assert traces(one)["FAIL"]["y"] == [1], "an effect that isn't finite has no marker"


def test_rows_without_an_effect_are_named_and_none_at_all_is_said() -> None:
    [one] = drawn(ROW, BLANK)
    assert one.notes == ("No effect to draw: e2e_p95_ms at load inf.",)
    [none] = drawn(BLANK)
    assert none.spec is None and none.caption == "Nothing to draw."
    assert drawn() == []


def test_a_far_bound_runs_off_the_plot_and_does_not_flatten_it() -> None:
    [one] = drawn(dataclasses.replace(ROW, effect=1.1, lo=1.01, hi=1e6))
    assert one.spec is not None
    _, right = one.spec["layout"]["xaxis"]["range"]
    assert right < math.log(2.0) and traces(one)["bounds"]["marker"]["symbol"][1] == "triangle-right"


number = st.none() | st.floats(-1e12, 1e12) | st.sampled_from([0.0, 1.0, 1e-300, 1e300, -0.5])


@given(number, number, number, st.sampled_from(["ratio", "difference"]), st.sampled_from(["1", "ms"]))
def test_whatever_the_numbers_all_is_finite_and_inside(
    effect: float | None, lo: float | None, hi: float | None, scale: Any, unit: str
) -> None:
    row = dataclasses.replace(ROW, effect=effect, lo=lo, hi=hi, scale=scale, unit=unit)
    for one in drawn(row, POINTS):
        if one.spec is None:
            continue
        assert json.loads(dump_text(one.spec)) == one.spec
        low, high = one.spec["layout"]["xaxis"]["range"]
        assert low < 0 < high
        for trace in one.spec["data"]:
            assert all(x is None or low <= x <= high for x in trace["x"]) and len(trace["x"]) == len(trace["y"])
        ticks = one.spec["layout"]["xaxis"].get("tickvals", [0])
        assert 0 in ticks and ticks == sorted(ticks)


def pages(simulated: bool = False) -> Iterator[tuple[str, str]]:
    arm = CompareArm("study", HOSTILE, None, "m", "w", "s", simulated)
    rows = (
        compared("worse", "ttft_p99_ms", HOSTILE),
        compared("better", "ttft_p50_ms"),
        compared("undecided", "e2e_p50_ms"),
    )
    loads = (CompareLoad("5", True, 5, 5, 0, 0, ()),)
    found = Comparison("tfbench.comparison/1", arm, arm, True, HOSTILE, (), (HOSTILE,), (HOSTILE,), loads, rows)
    yield "compare", comparison_page(found)
    yield "gate", gate_page(dataclasses.replace(RESULT, base=dataclasses.replace(ARM, simulated=simulated)))


def test_pages_hold_every_row_and_names_stay_text() -> None:
    for what, text in pages():
        page = Page(text)
        assert injected(page) == [] and plain(HOSTILE) in page.text and "SIMULATED" not in text
        assert ("1 worse, 1 better, 1 undecided" if what == "compare" else "FAIL") in page.text
        assert "5 (5)" not in page.text and "n (n_eff)" in page.text
    for _, text in pages(simulated=True):
        assert text.count("SIMULATED") >= 3, "in the title, the head and across each plot"


@pytest.mark.browser
def test_a_browser_draws_them_without_a_word(tmp_path: Path) -> None:
    for what, text in pages():
        path = tmp_path / f"{what}.html"
        path.write_text(text, encoding="utf-8")
        drawings = Page(text).attributes("data-drawing")
        assert drawings
        browser = chromium()
        if browser is None:
            continue
        dom, console = opened(browser, path)
        assert console == [] and dom.count('class="main-svg"') >= len(drawings)


def test_roles_are_colours_of_both_themes() -> None:
    for one in drawn(ROW, RATE, POINTS, BLANK, compared("worse", "ttft_p99_ms"), compared("undecided", "e2e_p50_ms")):
        for theme in THEMES.values():
            assert "@" not in json.dumps(fill(one.spec, theme))
