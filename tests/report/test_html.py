import json
import re
from pathlib import Path

import pytest

from tests.report.pages import Page, injected
from tests.report.sample import HOSTILE, STEMS, Sample
from tests.report.studies import MEDIANS, PROFILES, SAMPLES, profiles, troubled
from tfbench.core.errors import StorageError
from tfbench.report import html_report, write_html
from tfbench.report.cdf import points_for
from tfbench.report.escape import csp_hash, plain
from tfbench.report.lines import requests_words
from tfbench.report.page import Plotly
from tfbench.report.sections import best, sections


@pytest.fixture(scope="module", params=SAMPLES)
def page(request: pytest.FixtureRequest) -> tuple[str, Page, str]:
    text = html_report(SAMPLES[request.param]())
    return request.param, Page(text), text


def test_fits_in_a_mail(page: tuple[str, Page, str]) -> None:
    assert len(page[2].encode()) < 6_000_000


def test_twenty_load_points_still_fit_in_a_mail() -> None:
    sample = Sample()
    for load in range(2, 42, 2):
        sample.add_runs(float(load), 5)
        for stem in STEMS:
            sample.add_latency(float(load), stem, 50.0 + load)
        sample.add_work(float(load), load, 0.9)
        sample.add_outcomes(float(load), 5, {"ok": 100})
        sample.add_cdfs(float(load), MEDIANS, 5, points=points_for(20))
    assert len(html_report(sample.data()).encode()) < 6_000_000


def test_fetches_nothing_and_takes_no_outside_markup(page: tuple[str, Page, str]) -> None:
    assert injected(page[1]) == []
    assert [tag for tag, _ in page[1].elements if tag == "link"] == []
    assert page[2].count("plotly.js v") == 1


def test_only_its_own_two_scripts_may_run(page: tuple[str, Page, str]) -> None:
    (policy,) = [
        attrs["content"] or ""
        for tag, attrs in page[1].elements
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    data, *running = page[1].scripts
    assert data[0] == {"type": "application/json", "id": "drawings"}
    assert len(running) == 2
    (sources,) = re.findall(r"script-src ([^;]*)", policy)
    assert sources.split() == [csp_hash(script) for _, script in running]
    assert "default-src 'none'" in policy
    assert "base-uri 'none'" in policy


def test_every_drawing_has_its_place_its_data_and_its_caption(page: tuple[str, Page, str]) -> None:
    name, parsed, _ = page
    data = SAMPLES[name]()
    wanted = [d for section in sections(data) for d in section.drawings]
    given = json.loads(parsed.scripts[0][1])
    drawn = [d.key for d in wanted if d.spec is not None]
    assert parsed.attributes("data-drawing") == drawn
    assert sorted(given["drawings"]) == sorted(drawn)
    assert [i for i in parsed.attributes("id") if i.startswith("fig-")] == [f"fig-{d.key}" for d in wanted]
    for drawing in wanted:
        assert drawing.caption.replace("\u202e", "\ufffd") in parsed.text


def test_ids_are_unique(page: tuple[str, Page, str]) -> None:
    ids = page[1].attributes("id")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("turn", range(len(HOSTILE)))
def test_hostile_text_stays_text_wherever_it_stands(turn: int) -> None:
    words = HOSTILE[turn:] + HOSTILE[:turn]
    parsed = Page(html_report(troubled(words)))
    assert injected(parsed) == []
    assert len(parsed.scripts) == 3
    for word in words:
        assert (
            plain(word)[:60] in " ".join(parsed.text.replace("\ufffd", " ").split("\n")) or plain(word) in parsed.text
        )


def test_a_healthy_report_answers_the_question_first() -> None:
    text = " ".join(Page(html_report(SAMPLES["healthy"]())).text.split())
    for piece in (
        "15 of 15 runs VALID, 3 of 3 load points stable, K = 5.",
        "quality not judged",
        "SLO: TTFT ≤ 500 ms, TPOT ≤ 40 ms, ICL each P99 ≤ 100 ms",
        "Highest goodput over VALID, stable runs, at an offered load of 8 req/s",
        "7.50 requests/s",
        "n = 2,400, K = 5; t on log of runs (K=5)",
    ):
        assert piece in text


def test_trouble_is_told() -> None:
    text = " ".join(Page(html_report(SAMPLES["troubled"]())).text.split())
    for piece in (
        "13 of 23 runs VALID, 5 INVALID",
        "INVALID at 4, repeat 1, 3: client lag p99 5.17 ms > 5 ms",
        "✗ 4.7 – 6.58 ms",
        "≤ 5 ms",
        "not settled",
        "over 1 − p of the attempts failed",
        "interrupted",
    ):
        assert piece in text


def test_simulated_and_failed_studies_say_so() -> None:
    assert "SIMULATED" in Page(html_report(SAMPLES["lone"]())).text
    text = Page(html_report(SAMPLES["all_failed"]())).text
    assert "every attempt failed" in text
    assert "No headline figure" in text


def test_a_simulated_page_names_its_profiles_and_gives_each_its_own_answer() -> None:
    html = html_report(profiles(done=5))
    text = " ".join(Page(html).text.split())
    for piece in (
        f"SIMULATED on {PROFILES[0]}, {PROFILES[1]} · chat-8b",
        f"tfbench report SIMULATED on {PROFILES[0]}, {PROFILES[1]}",
        f"Highest simulated goodput over VALID, stable runs of {PROFILES[0]}, at an offered load of 16 req/s",
        f"Highest simulated goodput over VALID, stable runs of {PROFILES[1]}, at an offered load of 16 req/s",
        "5 of 12 planned runs, 5 of 5 runs VALID",
    ):
        assert piece in text
    assert '<li class="chip warn">5 of 12 planned runs</li>' in html
    assert "#client" not in html and "✓ 0.21" not in text
    assert "planned runs" not in Page(html_report(profiles())).text


def test_every_figure_row_carries_n_k_and_method() -> None:
    data = SAMPLES["healthy"]()
    text = html_report(data)
    table = text[text.index('<table class="all">') : text.index("</table>", text.index('<table class="all">'))]
    assert table.count("<td>yes</td>") == len(data.figures)
    assert table.count("t on log of runs (K=5)") + table.count("Clopper-Pearson") == len(data.figures)


def test_write_html(tmp_path: Path) -> None:
    path = write_html(SAMPLES["lone"](), tmp_path / "report.html")
    assert write_html(SAMPLES["lone"](), path) == path, "a page takes the place of an older one"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="no such folder"):
        write_html(SAMPLES["lone"](), tmp_path / "file" / "report.html")


@pytest.mark.parametrize(("plotly", "source"), [("cdn", "https://cdn.plot.ly/plotly-"), ("file", "plotly.min.js")])
def test_a_page_without_plotly_in_it_is_small_and_may_load_only_that(plotly: Plotly, source: str) -> None:
    text = html_report(SAMPLES["healthy"](), plotly)
    page = Page(text)
    assert len(text.encode()) < 500_000
    _, (outside, inside), (_, own) = page.scripts
    assert (outside["src"] or "").startswith(source) and inside == ""
    assert plotly == "file" or (outside["integrity"] or "").startswith("sha256-")
    (sources,) = re.findall(r"script-src ([^;]*)", " ".join(page.attributes("content")))
    allowed = ["'self'", "file:"] if plotly == "file" else [outside["src"]]
    assert sources.split() == [*allowed, csp_hash(own)]
    assert injected(page) == [f"script src={outside['src']}"]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_top_says_what_was_measured_and_no_name_of_ours_is_read(name: str) -> None:
    data = SAMPLES[name]()
    text = html_report(data)
    head = " ".join(Page(text.partition("<nav")[0]).text.split())
    assert requests_words(data) in head
    assert "hardware not named" in head or "1 × " in head
    if name != "troubled":  # its outcomes and errors have names from outside
        told = Page(text.partition('<section id="definitions">')[0]).text
        assert set(re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b", told)) <= {
            "st_0123456789abcdef",
            "good_fraction",
            "n_eff",
        }


def test_requests_are_counted_in_words() -> None:
    assert requests_words(SAMPLES["healthy"]()) == "4,200 requests: 4,045 were answered well, 155 timed out"
    assert requests_words(SAMPLES["empty"]()) == "no request was scheduled in a window"


def test_no_headline_of_the_page_rests_on_what_is_not_settled() -> None:
    sample = Sample()
    sample.add_runs(2.0, 5)
    sample.add_figure(2.0, "goodput_requests_per_s", "requests/s", 2.0, settled=False, reason="too few")
    assert best(sample.data()) == ()
