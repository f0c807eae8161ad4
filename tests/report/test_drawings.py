import math
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.sample import Sample
from tests.report.studies import PROFILES, SAMPLES
from tfbench.report.cdf import empirical_cdf
from tfbench.report.drawing import Drawing, log_axis, y_scale
from tfbench.report.model import LoadPoint, ReportData
from tfbench.report.sections import best, sections, slo_limits, slo_words
from tfbench.report.share_drawings import outcome_table
from tfbench.report.theme import THEMES, fill

KEYS = {
    "ttft", "tpot", "icl", "e2e", "goodput", "good-fraction", "cost", "tokens",
    "cdf-ttft", "cdf-tpot", "cdf-icl", "cdf-e2e", "outcomes",
}  # fmt: skip
CURVES = {"operating", "operating-ttft", "operating-cost"}


def drawings(data: ReportData) -> dict[str, Drawing]:
    return {drawing.key: drawing for section in sections(data) for drawing in section.drawings}


def spec(drawing: Drawing) -> dict[str, Any]:
    assert drawing.spec is not None
    return drawing.spec


def named(drawing: Drawing, **wanted: Any) -> list[dict[str, Any]]:
    return [t for t in spec(drawing)["data"] if all(t.get(key) == value for key, value in wanted.items())]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", SAMPLES)
def test_plotly_takes_every_drawing(name: str, theme: str) -> None:
    data = SAMPLES[name]()
    drawn = drawings(data)
    lag = set() if data.all_simulated else {"client-lag"}
    assert set(drawn) == KEYS | lag | (CURVES if len(data.loads) > 1 else set())
    for drawing in drawn.values():
        if drawing.spec is not None:
            figure = go.Figure(fill(drawing.spec, THEMES[theme]))
            assert "@" not in figure.to_json()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_caption_states_n_k_and_method_or_why_there_is_nothing(name: str) -> None:
    for drawing in drawings(SAMPLES[name]()).values():
        assert "n = " in drawing.caption
        if drawing.spec is None:
            assert drawing.caption.startswith("Nothing to draw (n = 0): ")
            assert drawing.caption.count(". ") == 0 and not drawing.notes, "an empty panel says one sentence"
        else:
            assert "K = " in drawing.caption
            assert any(word in drawing.caption for word in ("intervals: ", "No interval", "Empirical", "Exact counts"))


def test_a_study_where_all_is_well_draws_everything() -> None:
    assert all(drawing.spec is not None for drawing in drawings(SAMPLES["healthy"]()).values())


def test_intervals_are_bars_and_bands() -> None:
    (line,) = named(drawings(SAMPLES["healthy"]())["ttft"], name="P95", showlegend=True)
    assert line["y"] == pytest.approx([80 * 1.7**1.6 * slow for slow in (1, 1.15, 1.9)])
    assert line["error_y"]["array"] == pytest.approx([0.07 * y for y in line["y"]])
    assert line["marker"]["symbol"] == ["square"] * 3
    (band,) = named(drawings(SAMPLES["healthy"]())["ttft"], name="P95", fill="toself")
    assert len(band["x"]) == 6


def test_open_ends_are_arrows_and_unsettled_values_hollow() -> None:
    drawing = drawings(SAMPLES["troubled"]())["e2e"]
    line, *_ = named(drawing, name="P50", showlegend=True)
    symbols = dict(zip(line["y"], line["marker"]["symbol"], strict=True))
    assert symbols[80.0] == "circle"
    assert symbols[110.0] == "circle-open"
    (arrows,) = [t for t in named(drawing, name="P50") if "triangle-up" in t["marker"].get("symbol", [])]
    top = spec(drawing)["layout"]["yaxis"]["range"][1]
    assert arrows["y"] == pytest.approx([110.0, 0.98 * top, None, 750.0, 0.98 * top, None])
    assert arrows["x"][0] == arrows["x"][1]


def test_ticks_tell_what_is_missing() -> None:
    axis = spec(drawings(SAMPLES["troubled"]())["ttft"])["layout"]["xaxis"]
    words = dict(zip(axis["tickvals"], axis["ticktext"], strict=True))
    assert words == {
        2.0: "2",
        4.0: "4<br><b>2/5 INVALID</b>",
        8.0: "8<br><b>withheld</b>",
        16.0: "16",
        32.0: "32<br><b>INVALID no value</b>",
    }
    assert axis["type"] == "log"


def test_notes_name_figures_loads_and_reasons() -> None:
    notes = drawings(SAMPLES["troubled"]())["cost"].notes
    assert notes == ("cost at 8, 16: zero qualified tokens: lower bound only",)


def test_single_runs_are_faint_dots() -> None:
    (dots,) = [t for t in named(drawings(SAMPLES["healthy"]())["tpot"], name="P50") if t["mode"] == "markers"]
    assert len(dots["x"]) == 15
    assert all(text.startswith("P50, repeat ") for text in dots["hovertext"])


def test_invalid_runs_are_crosses_in_the_lag_drawing() -> None:
    sample = Sample()
    sample.add_runs(4.0, 3, validity=lambda r: "INVALID" if r == 1 else "VALID")
    sample.add_latency(4.0, "client_lag", 0.1, k=3)
    (dots,) = [
        t
        for t in named(drawings(sample.data())["client-lag"], name="P99")
        if "hovertext" in t and t["mode"] == "markers" and "error_y" not in t
    ]
    assert dots["marker"]["symbol"] == ["circle", "x-thin-open", "circle"]
    assert [text.endswith("(INVALID run)") for text in dots["hovertext"]] == [False, True, False]


def test_a_distribution_with_failures_stops_below_one() -> None:
    drawing = drawings(SAMPLES["healthy"]())["cdf-e2e"]
    curve = named(drawing, name="8 req/s", showlegend=True)[0]
    assert curve["y"][0] == 0.0
    assert curve["y"][-1] == curve["y"][-2] == pytest.approx(1 - 25 / 2400, abs=1e-5)
    assert "never came" in curve["hovertext"][-1]
    assert any(note.startswith("Never came") and "at 8" in note for note in drawing.notes)
    whole = named(drawing, name="2 req/s", showlegend=True)[0]
    assert whole["y"][-1] == 1.0


def test_distributions_of_unstable_loads_are_withheld() -> None:
    drawing = drawings(SAMPLES["troubled"]())["cdf-ttft"]
    assert not named(drawing, name="8 req/s")
    assert any("Withheld at 8" in note for note in drawing.notes)


def test_every_outcome_is_there() -> None:
    drawing = drawings(SAMPLES["troubled"]())["outcomes"]
    names = [trace["name"] for trace in spec(drawing)["data"]]
    assert "never sent" in names and not [name for name in names if "_" in name]
    assert len(names) == 11
    shares = [sum(trace["x"][i] for trace in spec(drawing)["data"]) for i in range(4)]
    assert shares == pytest.approx([1.0] * 4)
    table = dict(outcome_table(SAMPLES["troubled"]()))
    assert table[LoadPoint(2.0)]["unsent"] == 5
    assert sum(table[LoadPoint(8.0)].values()) == 5 * 483


def test_slo_limits() -> None:
    data = SAMPLES["healthy"]()
    assert slo_limits(data, "ttft") == ((500.0, "SLO ≤ 500 ms"),)
    assert slo_limits(data, "icl") == ((100.0, "SLO: each P99 ≤ 100 ms"),)
    assert slo_limits(data, "e2e") == ()
    assert slo_words(data) == "TTFT ≤ 500 ms, TPOT ≤ 40 ms, ICL each P99 ≤ 100 ms"
    assert slo_words(SAMPLES["lone"]()) == "none"


def test_the_best_load_rests_on_valid_and_stable_runs() -> None:
    (found,) = best(SAMPLES["healthy"]())
    assert found.goodput.load.value == 8.0 and found.last
    (found,) = best(SAMPLES["troubled"]())
    assert found.goodput.load.value == 4.0, "the INVALID runs are left out of its figures"
    assert not found.last
    assert best(SAMPLES["all_failed"]()) == ()


def test_each_arm_has_a_best_load_of_its_own() -> None:
    found = best(SAMPLES["profiles"]())
    assert [(one.goodput.load.arm, one.goodput.value, one.last) for one in found] == [
        (PROFILES[0], 15.12, True),
        (PROFILES[1], 9.6, True),
    ]


def test_nobody_measures_the_clients_lag_in_virtual_time() -> None:
    assert "client" in [section.key for section in sections(SAMPLES["healthy"]())]
    for name in ("profiles", "lone"):
        assert "client" not in [section.key for section in sections(SAMPLES[name]())]


@pytest.mark.parametrize(
    "columns",
    [
        [[0.0] * 5],
        [[0.0] * 5, [0.0, 12.0]],
        [[5.0] * 5],
        [[1e-9] * 3],
        [[0.0, math.inf]],
        [[1e-6, 1e9]],
        [[math.inf] * 3],
        [[]],
        [[math.inf], [0.0]],
    ],
    ids=str,
)
@pytest.mark.parametrize("metric", ["ttft", "tpot", "icl", "e2e"])
def test_any_column_can_be_drawn(columns: list[list[float]], metric: str) -> None:
    sample = Sample()
    for load, values in enumerate(columns, start=1):
        sample.add_runs(float(load), 2)
        run = (np.array(values, dtype=np.float64), np.ones(len(values), dtype=np.int64))
        cdf = empirical_cdf(LoadPoint(float(load)), metric, [run, run])
        if cdf is not None:
            sample.cdfs.append(cdf)
    drawn = drawings(sample.data())[f"cdf-{metric}"]
    finite = [x for values in columns for x in values if math.isfinite(x)]
    assert (drawn.spec is None) == (not finite)
    if finite:
        low, high = spec(drawn)["layout"]["xaxis"]["range"]
        assert low < high
        for curve in named(drawn, showlegend=True):
            assert all(10**low <= x <= 10**high * 1.000001 for x in curve["x"])


@pytest.mark.parametrize("name", SAMPLES)
def test_shading_stays_inside_the_axes(name: str) -> None:
    sample = SAMPLES[name]()
    far = [replace(f, lo=(f.lo or 1.0) / 100, hi=(f.hi or 1.0) * 100) for f in sample.figures]
    for data in (sample, replace(sample, figures=tuple(far))):
        for drawing in drawings(data).values():
            for band in named(drawing, fill="toself") if drawing.spec is not None else ():
                for axis in "xy":
                    held = spec(drawing)["layout"][f"{axis}axis"]
                    low, high = (10**end if held["type"] == "log" else end for end in held["range"])
                    assert low - 1e-9 <= min(band[axis]) and max(band[axis]) <= high * (1 + 1e-9), drawing.key


@given(
    st.lists(st.tuples(*[st.none() | st.floats(-1e6, 1e30) | st.sampled_from([0.0, 5e-324, 1e-300])] * 3), max_size=5),
    st.lists(st.floats(0, 1e9), max_size=3),
)
def test_a_scale_fits_any_figures(found: list[tuple[float | None, ...]], extra: list[float]) -> None:
    sample = Sample()
    for load, (value, lo, hi) in enumerate(found, start=1):
        sample.add_figure(float(load), "ttft_p50_ms", "ms", value, lo=lo, hi=hi)
    scale = y_scale(sample.data().figures, extra)
    assert scale.low < scale.high
    assert math.isfinite(scale.high)
    low, high = scale.axis()["range"]
    assert low < high


def test_scales() -> None:
    sample = Sample()
    for load, value in ((1.0, 10.0), (2.0, 2000.0)):
        sample.add_figure(load, "ttft_p50_ms", "ms", value, lo=value / 2, hi=value * 100)
    figures = sample.data().figures
    wide, near = y_scale(figures), y_scale(figures[:1])
    assert wide.log
    assert wide.low < 5 < 2000 < wide.high
    assert (near.log, near.low) == (False, 0.0)
    assert near.high < 40, "a far bound runs off the plot instead of flattening it"
    assert y_scale([]) == y_scale(())


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.02, 5000.0, [0.1, 1.0, 10.0, 100.0, 1000.0]),
        (8.0, 220.0, [10.0, 20.0, 50.0, 100.0, 200.0]),
        (6.0, 26.0, [7.0, 10.0, 15.0, 20.0]),
        (310.0, 370.0, [320.0, 340.0, 360.0]),
    ],
)
def test_log_axes_have_round_ticks(low: float, high: float, ticks: list[float]) -> None:
    axis = log_axis(low, high)
    assert axis["tickvals"] == pytest.approx(ticks)
    assert len(axis["ticktext"]) == len(ticks)


def test_all_at_once_stands_beyond_the_other_loads() -> None:
    sample = Sample()
    for load in (2.0, 4.0, math.inf):
        sample.add_figure(load, "ttft_p50_ms", "ms", 10.0)
    axis = spec(drawings(sample.data())["ttft"])["layout"]["xaxis"]
    assert (axis["tickvals"], axis["ticktext"]) == ([2.0, 4.0, 5.0], ["2", "4", "inf"])
