"""Operating curves and the answer of a capacity search, as a report shows them."""

import io
from dataclasses import replace
from typing import Any

import pytest

from tests.report.pages import Page
from tests.report.sample import Sample
from tests.report.studies import SAMPLES, searched
from tfbench.report import html_report, json_document, print_summary
from tfbench.report.curves import (
    capacity_lines,
    capacity_words,
    curve_drawings,
    hull,
    operating_points,
    per_user,
    with_capacity,
)
from tfbench.report.drawing import Drawing
from tfbench.report.model import CapacityFound, ReportData
from tfbench.report.sections import sections


def drawing(data: ReportData, key: str) -> Drawing:
    return next(one for part in sections(data) for one in part.drawings if one.key == key)


def layout(one: Drawing) -> dict[str, Any]:
    assert one.spec is not None
    return dict(one.spec["layout"])


def test_tokens_per_user_are_the_inverse_of_tpot_with_its_bounds_exchanged() -> None:
    data = SAMPLES["healthy"]()
    tpot = data.figure(data.loads[0], "tpot_p50_ms")
    assert tpot is not None and tpot.lo is not None and tpot.hi is not None
    user = per_user(tpot)
    assert user.value == pytest.approx(1000 / 11)
    assert (user.lo, user.hi) == (pytest.approx(1000 / tpot.hi), pytest.approx(1000 / tpot.lo))
    assert (user.direction, user.unit, user.k, user.method) == ("higher", "tokens/s", 5, tpot.method)
    assert per_user(replace(tpot, value=0.0, lo=None)).value is None


def test_a_study_of_one_load_point_has_no_curve() -> None:
    assert operating_points(SAMPLES["lone"]()) == () and curve_drawings(SAMPLES["lone"]()) == ()
    assert "operating" not in {part.key for part in sections(SAMPLES["lone"]())}


def test_a_point_is_dominated_where_another_is_surely_better_in_one_and_not_worse_in_the_other() -> None:
    sample = Sample()
    # 4: more for all than 2, and less for each; 8: less for each than 4, and no more in all; 6: as 4, within noise.
    for load, tokens, tpot in ((2.0, 200.0, 10.0), (4.0, 400.0, 20.0), (6.0, 398.0, 20.2), (8.0, 399.0, 40.0)):
        sample.add_runs(load, 5)
        sample.add_figure(load, "throughput_output_tokens_per_s", "tokens/s", tokens)
        sample.add_figure(load, "tpot_p50_ms", "ms", tpot)
    points = operating_points(sample.data())
    assert [one.dominated_by.value if one.dominated_by else None for one in points] == [None, None, None, 4.0]
    (line,) = [t for t in drawing(sample.data(), "operating").spec["data"] if "text" in t.get("mode", "")]  # type: ignore[index]
    assert line["text"] == ["2", "4", "6", "8"]
    assert line["marker"]["color"] == ["@s1", "@s1", "@s1", "@muted"]
    assert line["marker"]["symbol"][-1] == "x"
    assert "dominated by 4 req/s" in line["hovertext"][-1]
    assert json_document(sample.data())["operating_curve"][-1]["dominated_by"] == "4"


def test_a_load_is_dominated_where_a_lower_one_gives_more_goodput() -> None:
    sample = Sample()
    # TPOT is withheld where the backlog grows, so that the two planes alone couldn't tell.
    for load, goodput in ((2.0, 2.0), (4.0, 3.9), (8.0, 3.8), (16.0, 0.5)):
        sample.add_runs(load, 5)
        sample.add_figure(load, "throughput_output_tokens_per_s", "tokens/s", 100.0 * load)
        sample.add_figure(load, "goodput_requests_per_s", "requests/s", goodput)
    points = operating_points(sample.data())
    assert [one.dominated_by.value if one.dominated_by else None for one in points] == [None, None, None, 2.0]


def test_bands_are_the_hulls_of_neighbouring_intervals() -> None:
    assert hull([(0, 0), (2, 0), (1, 1), (2, 2), (0, 2), (1, 0)]) == [(0, 0), (2, 0), (2, 2), (0, 2)]
    assert hull([(1, 1), (1, 1)]) == [(1, 1)]
    spec = drawing(SAMPLES["healthy"](), "operating").spec
    assert spec is not None
    bands = [t for t in spec["data"] if t.get("fill") == "toself"]
    assert len(bands) == 2
    (line,) = [t for t in spec["data"] if "text" in t.get("mode", "")]
    for axis in "xy":
        assert min(min(band[axis]) for band in bands) < min(line[axis])
        assert max(max(band[axis]) for band in bands) > max(line[axis])
        assert len(line[f"error_{axis}"]["array"]) == 3


def test_what_cannot_stand_on_the_curve_is_named() -> None:
    words = " ".join(drawing(SAMPLES["troubled"](), "operating").notes)
    assert "output tokens per second per user at 8" in words


def test_the_json_has_every_load_point_with_its_intervals() -> None:
    curve = json_document(SAMPLES["healthy"]())["operating_curve"]
    assert [point["load_value"] for point in curve] == [2, 4, 8]
    assert curve[0]["output_tokens_per_s"]["lo"] < curve[0]["output_tokens_per_s"]["value"]
    assert curve[0]["output_tokens_per_s_per_user"]["value"] == pytest.approx(1000 / 11)
    assert json_document(SAMPLES["lone"]())["operating_curve"] == []


def capacity(**more: Any) -> CapacityFound:
    given = {"target": "good_fraction ≥ 0.99", "unit": "requests/s", "lo": 4.0, "hi": 4.4, "confidence": 0.9}
    return CapacityFound(
        **(given | {"status": "found", "limit": "server", "reason": None, "runs": 9, "probed": ()} | more)
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({}, "4 to 4.4 requests/s"),
        ({"hi": None}, "at least 4 requests/s"),
        ({"lo": None}, "below 4.4 requests/s"),
        ({"lo": None, "hi": None}, "not decided"),
    ],
)
def test_the_answer_in_words(ends: dict[str, Any], words: str) -> None:
    assert capacity_words(capacity(**ends)) == words
    assert words in capacity_lines(capacity(**ends))[0] and "90 % confidence" in capacity_lines(capacity(**ends))[0]


def test_a_client_limit_is_called_one() -> None:
    lines = capacity_lines(capacity(hi=None, status="open", limit="client", reason="the client, not the server …"))
    assert "The client reached its own limit first" in lines[1]


@pytest.mark.parametrize(
    ("ends", "band"),
    [
        ({}, (4.0, 4.4)),
        ({"hi": None}, (4.0, None)),
        ({"lo": None, "hi": 3.0}, (None, 3.0)),
        ({"lo": None, "hi": None}, None),
    ],
)
def test_the_answer_is_a_band_over_the_load(ends: dict[str, Any], band: tuple[Any, Any] | None) -> None:
    data = replace(SAMPLES["healthy"](), capacity=capacity(**ends))
    plain = drawing(SAMPLES["healthy"](), "goodput")
    marked = with_capacity(data, plain)
    shapes = [shape for shape in layout(marked)["shapes"] if shape["type"] == "rect"]
    if band is None:
        assert shapes == []
        return
    left, right = layout(marked)["xaxis"]["range"]
    assert [(shape["x0"], shape["x1"]) for shape in shapes] == [
        (left if band[0] is None else band[0], right if band[1] is None else band[1])
    ]
    assert [shape for shape in layout(plain)["shapes"] if shape["type"] == "rect"] == []


def test_the_page_and_the_terminal_tell_answer_and_evidence() -> None:
    data = searched()
    page = Page(html_report(data)).text
    out = io.StringIO()
    print_summary(data, out, 120)
    for text in (page, out.getvalue()):
        assert "SLO capacity: 4 to 8 requests/s (90 % confidence)" in " ".join(text.split())
        for word in ("met", "not met", "undecided", "4 + 2 INVALID"):
            assert word in text
    notes = layout(drawing(data, "operating"))["annotations"]
    assert [note["text"] for note in notes] == ["SLO capacity: 4 to 8 requests/s"]
    assert any(shape["type"] == "rect" for shape in layout(drawing(data, "good-fraction"))["shapes"])
