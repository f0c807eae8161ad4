"""What the headline and the standing notes say of a whole study."""

import pytest

from tests.report.pages import Page
from tests.report.sample import Sample
from tests.report.studies import SAMPLES
from tfbench.report import html_report, json_document
from tfbench.report.overview import headline, standing_notes
from tfbench.report.validity import signal_table


@pytest.mark.parametrize(
    ("judgements", "said"),
    [
        ([None, None], "10 of 10 runs VALID, stability not judged, K = 5"),
        (["stable", "stable"], "10 of 10 runs VALID, 2 of 2 load points stable, K = 5"),
        (["stable", "unstable"], "10 of 10 runs VALID, 1 of 2 load points stable, K = 5"),
        (["stable", None], "10 of 10 runs VALID, 1 of 1 load points judged for it stable, K = 5"),
        (["undecided", "unstable"], "10 of 10 runs VALID, 0 of 2 load points stable, K = 5"),
    ],
)
def test_only_judged_load_points_are_counted(judgements: list[str | None], said: str) -> None:
    sample = Sample()
    for load, judgement in enumerate(judgements, start=1):
        sample.add_runs(float(load), 5, stability=lambda _, word=judgement: word)  # type: ignore[misc]
    data = sample.data()
    assert headline(data) == said
    assert json_document(data)["summary"] == said


def test_a_study_without_runs_has_no_stability() -> None:
    assert headline(SAMPLES["empty"]()) == "0 of 15 planned runs, 0 of 0 runs VALID, K = –"


def test_the_page_calls_no_run_stable_that_nobody_judged() -> None:
    page = Page(html_report(SAMPLES["closed"]())).text
    assert "Highest goodput over VALID runs (stability not judged), with 4 users" in " ".join(page.split())
    page = Page(html_report(SAMPLES["healthy"]())).text
    assert "Highest goodput over VALID, stable runs, at an offered load of 8 req/s" in " ".join(page.split())


def test_a_signal_nobody_could_measure_has_no_mark() -> None:
    assert "client lag p99 ms" in [row.name for row in signal_table(SAMPLES["healthy"]())]
    assert "client lag p99 ms" not in [row.name for row in signal_table(SAMPLES["profiles"]())]
    (row,) = [row for row in signal_table(SAMPLES["closed"]()) if row.name == "sent share"]
    assert row.limit == "≥ 0.99"
    assert [(cell.text, cell.ok) for cell in row.cells] == [("–", None)] * 2


def test_unknown_slo_terms_are_told() -> None:
    notes = standing_notes(SAMPLES["closed"]())
    assert "ok, but not good because the tokens or chunks of an SLO term are unknown: 35 at 4" in notes
    assert not [note for note in standing_notes(SAMPLES["healthy"]()) if "of an SLO term are unknown" in note]
