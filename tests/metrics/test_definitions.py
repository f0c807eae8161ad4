"""The registry: complete, and each definition's SQL gives what its kind takes."""

from pathlib import Path

import duckdb
import pytest

from tests.ledger.builder import answer
from tests.metrics.conftest import AddRun
from tfbench.metrics import FIGURES
from tfbench.metrics.docs import figures_markdown
from tfbench.metrics.facts import study_facts

CONTRACT = [
    *(
        f"{stem}_p{p}_ms"
        for stem in ("ttft", "ttft_service", "tpot", "e2e", "icl", "itl", "client_lag")
        for p in (50, 95, 99)
    ),
    "throughput_requests_per_s",
    "throughput_output_tokens_per_s",
    "goodput_requests_per_s",
    "good_fraction",
    "qualified_output_tokens_per_s",
    "cost_per_million_qualified_tokens",
]

COLUMNS = {
    "quantile": ["run_index", "value"],
    "chunk_quantile": ["run_index", "value"],
    "fraction": ["run_index", "value", "score"],
    "rate": ["run_index", "end_ns", "value"],
    "cost": ["run_index", "end_ns", "value"],
}


def test_every_figure_of_the_contract_is_there() -> None:
    assert [name for name in CONTRACT if name not in FIGURES] == []


@pytest.mark.parametrize("name", FIGURES)
def test_a_definition_is_complete(name: str) -> None:
    figure = FIGURES[name]
    assert figure.name == name
    assert all((figure.unit, figure.words, figure.source, figure.empty))
    assert (figure.p is not None) == (figure.kind in {"quantile", "chunk_quantile"})
    assert figure.p is None or f"_p{round(figure.p * 100)}_ms" in name
    assert ("_ok_" in name) == ("AND ok" in figure.sql and figure.p is not None)


def test_the_sql_gives_what_its_kind_takes(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([answer(1, 0), answer(2, 10)])
    with study_facts(con, "study-1") as facts:
        for figure in FIGURES.values():
            relation = facts.con.sql(f"{figure.sql} ORDER BY seq")
            assert relation.columns == COLUMNS[figure.kind], figure.name
            assert len(relation.fetchall()) == 2, figure.name


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "figures.md"
    assert page.read_text(encoding="utf-8") == figures_markdown(), "python -m tfbench.metrics.docs > docs/figures.md"


def test_the_page_names_every_figure() -> None:
    page = figures_markdown()
    assert [name for name in FIGURES if f"`{name}`" not in page] == []
