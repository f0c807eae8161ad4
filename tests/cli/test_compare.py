"""`compare` over studies made by hand: order, what hides, what is allowed."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.sides import compare, tfbench
from tests.verdict.ledgers import add_study, answers, latencies
from tfbench.cli.app import app


def test_what_is_allowed_is_compared_and_said(folder: Path) -> None:
    found = compare(folder, "base", "other", "--allow", "load", "--allow", "slo.ttft_ms")
    assert (
        found["same_test"] is False
        and found["attribution"] == "attributable to nothing alone: the test differs as well"
    )
    assert [one["path"] for one in found["differences"]] == ["slo.ttft_ms", "load"]
    assert compare(folder, "cold", "warm", "--allow", "cache")["rows"]
    assert tfbench(folder, "compare", "base", "other", "--allow", "load")[0] == 2


def test_single_runs_are_called_neither_worse_nor_better(tmp_path: Path) -> None:
    for name, scale in (("one", 1.0), ("two", 1.5)):
        rows = answers(latencies(0, arm=len(name), scale=scale))
        add_study(tmp_path / "w.duckdb", name, lambda r, rows=rows: rows, repeats=1)
    found = compare(tmp_path, "one", "two")
    first = next(row for row in found["rows"] if row["figure"] == "ttft_p50_ms")
    assert first["effect"] == pytest.approx(1.5, rel=0.05) and first["k"] == 1
    assert (first["lo"], first["hi"], first["leans"]) == (None, None, None)
    assert first["reason"].startswith("one run an arm: how far runs differ isn't known")
    assert {row["says"] for row in found["rows"]} <= {"undecided", "no data"}
    assert any("load.repeats = 5" in warning for warning in found["warnings"])
    _, text = tfbench(tmp_path, "compare", "one", "two")
    assert "0 worse, 0 better" in text and "one run an arm at load 5" in text


def test_compare_puts_what_got_worse_first_even_under_a_better_median(folder: Path) -> None:
    rows = compare(folder, "base", "tail")["rows"]
    first = rows[0]
    assert first["figure"] in ("ttft_p95_ms", "ttft_p99_ms") and first["says"] == "worse"
    assert first["hidden_by"] == first["figure"].replace("95", "50").replace("99", "50")
    by_figure = {row["figure"]: row for row in rows if row["bucket"] is None}
    assert by_figure["ttft_p50_ms"]["says"] == "better" and by_figure["ttft_p50_ms"]["hi"] < 1.0
    says = [row["says"] for row in rows]
    order = ["worse", "hidden", "better", "undecided", "no data"]
    places = ["hidden" if row["says"] != "worse" and row["hidden_by"] else row["says"] for row in rows]
    assert places == sorted(places, key=order.index) and {"worse", "better", "undecided"} <= set(says)
    _, text = tfbench(folder, "compare", "base", "tail")
    counts = f"{says.count('worse')} worse, {says.count('better')} better, {says.count('undecided')} undecided"
    assert counts in text


def test_compare_puts_an_undecided_tail_before_the_better_median(tmp_path: Path) -> None:
    def some_tails(r: int) -> list[Any]:
        values = latencies(r, arm=1) * 0.9
        order = sorted(values)[int(0.97 * len(values))]
        return answers([float(v * (0.6 + 0.6 * (r + 1) if v >= order else 1.0)) for v in values])

    add_study(tmp_path / "w.duckdb", "base", lambda r: answers(latencies(r)))
    add_study(tmp_path / "w.duckdb", "tails", some_tails)
    rows = [row for row in compare(tmp_path, "base", "tails")["rows"] if row["bucket"] is None]
    names = [row["figure"] for row in rows]
    p99, p50 = rows[names.index("ttft_p99_ms")], rows[names.index("ttft_p50_ms")]
    assert (p99["says"], p99["leans"], p99["hidden_by"], p50["says"]) == ("undecided", "worse", "ttft_p50_ms", "better")
    assert names.index("ttft_p99_ms") < names.index("ttft_p50_ms")


def test_compare_shows_the_bucket_that_the_whole_hides(folder: Path) -> None:
    first = compare(folder, "mix", "code")["rows"][0]
    assert (first["bucket_by"], first["bucket"], first["says"]) == ("class", "code", "worse")
    assert first["hidden_by"]


def test_compare_says_instability_first_and_leaves_invalid_runs_out(folder: Path) -> None:
    found = compare(folder, "base", "growing")
    assert found["warnings"][0].startswith("UNSTABLE: at load 5")
    assert {row["says"] for row in found["rows"] if row["figure"].startswith("ttft")} == {"no data"}
    found = compare(folder, "base", "invalid")
    assert found["loads"][0]["candidate_runs"] == 4 and "the client sent late" in found["warnings"][0]
    _, out = tfbench(folder, "compare", "base", "growing")
    assert out.index("UNSTABLE") < out.index("figure")


def test_studies_of_two_warehouses(folder: Path, tmp_path: Path) -> None:
    add_study(tmp_path / "v.duckdb", "there", lambda r: answers(latencies(r, arm=1)))
    arguments = ["compare", "base", "there", "--warehouse", str(folder / "w.duckdb")]
    done = CliRunner().invoke(app, [*arguments, "--warehouse", str(tmp_path / "v.duckdb"), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["candidate"]["study_id"] == "there"


def test_engine_profiles_of_simulated_studies_are_told(folder: Path) -> None:
    def told(a: str, b: str) -> str:
        return str(compare(folder, a, b)["attribution"])

    assert told("sim-fast", "sim-thin") == "attributable to the engine profile (fast → thin)"
    assert told("sim-fast", "sim-edited") == "attributable to the engine profile fast (its slots)"
    assert told("sim-fast", "sim-again").startswith("attributable to nothing the manifests name")
