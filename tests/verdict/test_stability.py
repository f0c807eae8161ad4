"""Stability through a warehouse: a growing backlog is found, a level one isn't."""

import duckdb
import pytest

from tests.ledger.builder import MANIFEST, Row, row
from tests.metrics.conftest import AddRun
from tfbench.verdict.stability import judge_stability


def level(n: int) -> list[Row]:
    """An arrival each 5 ms, each gone after 20 ms; the window is 1 s."""
    return [row(i, i * 5, end=20) for i in range(n)]


def growing(n: int) -> list[Row]:
    """Arrivals each 5 ms that leave only every 10 ms."""
    return [row(i, i * 5, end=20 + i * 5) for i in range(n)]


@pytest.mark.parametrize(("rows", "verdict"), [(level(200), "stable"), (growing(200), "unstable")])
def test_growth_is_found(con: duckdb.DuckDBPyConnection, add_run: AddRun, rows: list[Row], verdict: str) -> None:
    add_run(rows)
    found = judge_stability(con, "run-1")
    assert (found.kind, found.verdict) == ("stability", verdict)
    assert "per second" in found.reasons[0]


def test_growth_is_found_in_a_run_by_count_though_its_window_lasts_until_all_is_answered(
    con: duckdb.DuckDBPyConnection, add_run: AddRun
) -> None:
    add_run(growing(200), manifest=MANIFEST | {"load": {"count": 200}})
    assert judge_stability(con, "run-1").verdict == "unstable"


def test_a_handful_of_attempts_is_no_backlog(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([row(0, 100, end=50), row(1, 600, end=300)])
    assert judge_stability(con, "run-1").verdict == "stable"


def test_an_empty_run_is_undecided(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([])
    assert judge_stability(con, "run-1").verdict == "undecided"
