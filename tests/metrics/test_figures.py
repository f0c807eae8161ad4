"""Figures over runs: which runs, which method, what an unknown looks like."""

import json
import math
from typing import Any

import duckdb
import pytest

from tests.ledger.builder import MANIFEST, Row, answer, ns, row
from tests.metrics.conftest import AddRun
from tfbench.core.errors import UsageError
from tfbench.core.jsonio import dump_text
from tfbench.metrics import FIGURES, figures, run_figures

FRAME = "load_value arm figure unit direction value lo hi level method n n_eff k settled reason".split()
RUN_FRAME = "run_id load_value arm repeat order_index status figure unit direction value n reason".split()
COST = "cost_per_million_qualified_tokens"


def _figures(con: duckdb.DuckDBPyConnection, **options: Any) -> dict[Any, dict[str, Any]]:
    """Rows by figure name; by (load value, arm, name) where there are several points."""
    rows = figures(con, "study-1", **options).to_dict("records")
    points = {(row["load_value"], row["arm"]) for row in rows}
    if len(points) <= 1:
        return {row["figure"]: row for row in rows}
    return {(row["load_value"], row["arm"], row["figure"]): row for row in rows}


def _run_figures(con: duckdb.DuckDBPyConnection, run_id: str = "run-1") -> dict[str, dict[str, Any]]:
    rows = run_figures(con, "study-1").to_dict("records")
    return {row["figure"]: row for row in rows if row["run_id"] == run_id}


def _answers(shift: float = 0, n: int = 40) -> list[Row]:
    return [answer(i, i * 20, ttft=50 + shift + i % 7, gap=10 + shift) for i in range(n)]


def test_columns_and_rows(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers())
    frame = figures(con, "study-1")
    assert list(frame.columns) == FRAME
    assert list(frame["figure"]) == list(FIGURES)
    by_run = run_figures(con, "study-1")
    assert list(by_run.columns) == RUN_FRAME
    assert list(by_run["figure"]) == list(FIGURES)


def test_five_runs_give_the_pooled_quantile_with_ranks_by_their_shares(
    con: duckdb.DuckDBPyConnection, add_run: AddRun
) -> None:
    shifts = [0.0, 1.0, 2.0, 3.0, 4.0]
    for repeat, shift in enumerate(shifts):
        add_run(_answers(shift), run_id=f"run-{repeat}", repeat=repeat)
    found = _figures(con)["ttft_p50_ms"]
    assert found["value"] == 55 == sorted(50 + shift + i % 7 for shift in shifts for i in range(40))[99]
    assert found["method"] == "ranks by the runs' shares (K=5)"
    assert (found["k"], found["n"], found["settled"]) == (5, 200, True)
    assert found["lo"] < found["value"] < found["hi"]
    by_run = run_figures(con, "study-1")
    assert list(by_run[by_run["figure"] == "ttft_p50_ms"]["value"]) == [53 + shift for shift in shifts]


COUNTED = MANIFEST | {"load": {"count": 100}}
BETWEEN = "throughput_between_arrivals_requests_per_s"


def _at_ten_a_second(late: float = 0, n: int = 100) -> list[Row]:
    """100 requests at 10/s that take 5 s each; every other one `late` ms later."""
    return [answer(i, i * 100 + (late if i % 2 else 0), ttft=50, gap=2475) for i in range(n)]


def test_a_rate_whose_window_holds_drain_says_so_and_stands_beside_that_between_arrivals(
    con: duckdb.DuckDBPyConnection, add_run: AddRun
) -> None:
    # By count the window is 9.9 + 5 s long, and arrivals are 10 s of it.
    for repeat in range(5):
        add_run(_at_ten_a_second(repeat), run_id=f"run-{repeat}", repeat=repeat, manifest=COUNTED)
    found = _figures(con)
    rate, between = found["throughput_requests_per_s"], found[BETWEEN]
    assert rate["value"] == pytest.approx(100 / 14.9, rel=0.01) and rate["settled"]
    assert rate["lo"] < rate["value"] < rate["hi"] < 10
    assert rate["reason"] == (
        "the window holds 4.90 s of drain a run (33 %): between arrivals the rate was 10.0 requests/s,"
        " the system's own if it kept up"
    )
    assert between["value"] == pytest.approx(10.0, rel=0.001) and between["reason"] is None and between["settled"]
    assert between["lo"] < between["value"] < between["hi"] and between["method"].startswith("t on log of runs (K=5)")
    # Three tokens a request; their rates have no figure beside them, so the reason alone tells.
    assert "between arrivals the rate was 30.0 tokens/s" in found["throughput_output_tokens_per_s"]["reason"]
    assert "between arrivals the rate was 10.0 requests/s" in found["goodput_requests_per_s"]["reason"]
    assert "drain" not in (found["good_fraction"]["reason"] or "") + (found[COST]["reason"] or "")
    by_run = _run_figures(con, "run-0")
    assert by_run["throughput_requests_per_s"]["reason"].startswith("the window holds 4.90 s of drain (33 %): ")
    assert by_run[BETWEEN]["value"] == pytest.approx(10.0)


def test_a_little_drain_is_not_told(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([answer(i, i * 100, ttft=50, gap=200) for i in range(100)], manifest=COUNTED)
    rate = _figures(con)["throughput_requests_per_s"]
    assert rate["value"] == pytest.approx(100 / 10.35) and rate["reason"] is None


def test_retries_and_warm_up_are_no_arrivals(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    warm = [answer(200 + i, i * 100 - 5000, phase="warmup", ttft=50, gap=2475) for i in range(50)]
    rest = _at_ten_a_second()[1:]
    failed = row(0, 0, outcome="rejected", http_status=429, task_id="t")
    again = answer(300, 12_000, ttft=50, gap=400, task_id="t", **{"try": 1})
    add_run([*warm, failed, *rest, again], manifest=COUNTED)
    found = _figures(con)
    # 100 of 101 attempts went well, one of them long after the last request had come: 100 over 100 mean gaps.
    assert found[BETWEEN]["value"] == pytest.approx(10.0)
    # Answers to the warm-up end in the window too.
    assert found["throughput_requests_per_s"]["value"] == pytest.approx(150 / 14.9, rel=0.02)


def test_users_of_a_closed_loop_that_start_together_end_no_gap(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    # Ten users, a second a request: ten requests each second, the first ten at 0 s, the last ten at 9 s.
    rows = [answer(i, i // 10 * 1000 + (i % 10 if i >= 10 else 0), ttft=50, gap=475) for i in range(100)]
    add_run(rows, mode="closed", load_value=10.0, manifest=COUNTED)
    assert _figures(con)[BETWEEN]["value"] == pytest.approx(10.0, rel=0.002)


@pytest.mark.parametrize(("load_value", "manifest"), [(math.inf, MANIFEST), (5.0, COUNTED)])
def test_all_at_once_leaves_nothing_between_arrivals(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, load_value: float, manifest: dict[str, Any]
) -> None:
    add_run([answer(i, 0, ttft=50, gap=2475) for i in range(40)], load_value=load_value, manifest=manifest)
    for found in (_figures(con), _run_figures(con)):
        assert "drain" not in (found["throughput_requests_per_s"]["reason"] or "")
        assert found[BETWEEN]["value"] is None
        assert found[BETWEEN]["reason"].startswith("all requests arrive at once: no time lies between arrivals")


def test_runs_by_duration_hold_no_drain(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers())
    found = _figures(con)
    assert "drain" not in (found["throughput_requests_per_s"]["reason"] or "")
    between = found["throughput_between_arrivals_requests_per_s"]
    assert between["value"] == found["throughput_requests_per_s"]["value"] == 40


def test_one_run_is_labelled_approximate(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers())
    found = _figures(con)
    assert found["ttft_p50_ms"]["value"] == 53
    assert found["ttft_p50_ms"]["method"].startswith("approximate")
    assert found["icl_p50_ms"]["n"] == 80
    assert found["goodput_requests_per_s"]["value"] == 40
    assert found["goodput_requests_per_s"]["lo"] < 40


def test_only_complete_runs_are_combined(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers(), run_id="run-0")
    add_run(_answers(500), run_id="run-1", repeat=1, status="interrupted")
    assert _figures(con)["ttft_p50_ms"]["value"] == 53
    assert _run_figures(con, "run-1")["ttft_p50_ms"]["value"] == 553


def test_no_complete_run(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers(), status="interrupted")
    rows = _figures(con).values()
    assert {(row["value"], row["lo"], row["hi"], row["k"], row["reason"]) for row in rows} == {
        (None, None, None, 0, "no complete run")
    }


def test_runs_can_be_left_out(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers(), run_id="run-0")
    add_run(_answers(500), run_id="run-1", repeat=1)
    assert _figures(con, run_ids=["run-1"])["ttft_p50_ms"]["value"] == 553
    assert _figures(con, run_ids=["run-1"])["ttft_p50_ms"]["k"] == 1
    assert figures(con, "study-1", run_ids=[]).empty


def test_points_and_arms_stay_apart(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers(0), run_id="run-0", load_value=2.0, arm="a")
    add_run(_answers(10), run_id="run-1", load_value=2.0, arm="b")
    add_run(_answers(20), run_id="run-2", load_value=math.inf, arm="a")
    found = _figures(con)
    assert found[2.0, "a", "ttft_p50_ms"]["value"] == 53
    assert found[2.0, "b", "ttft_p50_ms"]["value"] == 63
    assert found[math.inf, "a", "ttft_p50_ms"]["value"] == 73


def test_all_at_once_runs_from_first_schedule_to_last_end(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    rows = [answer(1, 10, phase="warmup"), answer(2, 100), answer(3, 100, ttft=379.5)]
    # Whatever the run's row says, 100 to 100 + 379.5 + 20 ms are the window, and the last end lies in it.
    add_run(rows, load_value=math.inf, measure_end_ns=None)
    found = _run_figures(con)
    assert found["throughput_requests_per_s"]["value"] == pytest.approx(2 / 0.3995)
    assert _figures(con)["throughput_requests_per_s"]["value"] == pytest.approx(2 / 0.3995)


def test_a_count_does_the_same(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([answer(1, 0), answer(2, 30)], manifest=MANIFEST | {"load": {"count": 2}})
    assert _run_figures(con)["throughput_requests_per_s"]["value"] == pytest.approx(2 / 0.1)


def test_cost(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers())
    found = _figures(con)[COST]
    assert found["unit"] == "EUR/Mtok"
    # 3.60 an hour for 1 s is 0.001; 40 answers of 3 tokens
    assert found["value"] == pytest.approx(0.001 * 1e6 / 120)


@pytest.mark.parametrize(
    "cost", [{}, {"resources": []}, {"currency": "USD", "resources": None}, None], ids=["none", "empty", "null", "gone"]
)
def test_no_resources_no_cost(con: duckdb.DuckDBPyConnection, add_run: AddRun, cost: dict[str, Any] | None) -> None:
    add_run(_answers(), manifest=MANIFEST | {"cost": cost})
    for found in (_figures(con)[COST], _run_figures(con)[COST]):
        assert found["value"] is None
        assert found["reason"] == "no [cost] resources in the manifest"
        assert found["unit"] == "USD/Mtok"


def test_several_resources_add_up(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    resources = [{"name": "gpu", "hourly": 1.0, "count": 3}, {"name": "host", "hourly": 0.6}]
    add_run(_answers(), manifest=MANIFEST | {"cost": {"resources": resources}})
    assert _run_figures(con)[COST]["value"] == pytest.approx(0.001 * 1e6 / 120)


def test_nothing_qualified_gives_bounds(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    for repeat in range(5):
        add_run([answer(i, i * 20, ttft=200) for i in range(40)], run_id=f"run-{repeat}", repeat=repeat)
    found = _figures(con)
    assert found[COST]["value"] is None
    assert found[COST]["hi"] is None
    assert found[COST]["lo"] > 0
    assert found[COST]["reason"]
    for name in ("goodput_requests_per_s", "qualified_output_tokens_per_s", "good_fraction"):
        assert found[name]["value"] == 0
        assert found[name]["lo"] is None
        assert found[name]["hi"] > 0


def test_unknown_tokens_give_one_bound(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([*_answers(), row(99, 990, [(5, "text", None)])])
    found, by_run = _figures(con), _run_figures(con)
    for name, known in (
        ("throughput_output_tokens_per_s", 120),
        ("qualified_output_tokens_per_s", 120),
        ("qualified_input_tokens_per_s", 400),
    ):
        assert found[name]["value"] is None
        assert 0 < found[name]["lo"] < known
        assert found[name]["hi"] is None
    assert found[COST]["value"] is None
    assert found[COST]["lo"] is None
    assert found[COST]["hi"] > 0.001 * 1e6 / 120
    assert by_run[COST]["reason"] == "tokens unknown for 1 of 41 attempts"
    assert found["throughput_requests_per_s"]["value"] == 41


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ([("gpu", 0, 1)], "the [cost] resources cost nothing"),
        ([("gpu", 0.0, 8), ("host", 0, 1)], "the [cost] resources cost nothing"),
        ([("gpu", 5e-324, 1)], "the [cost] resources cost nothing"),
        ([("gpu", 1e308, 1e308)], "the [cost] resources' price is beyond what a number can hold"),
        ([("gpu", 1e308, 1), ("host", 1e308, 1)], "the [cost] resources' price is beyond what a number can hold"),
        ([], "no [cost] resources in the manifest"),
    ],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 3])
def test_a_price_that_is_none_gives_no_cost(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, resources: list[tuple[str, float, float]], reason: str, k: int
) -> None:
    told = [dict(zip(("name", "hourly", "count"), one, strict=True)) for one in resources]
    manifest = MANIFEST | {"cost": {"currency": "EUR", "resources": told}}
    for repeat in range(k):
        add_run(_answers(), run_id=f"run-{repeat}", repeat=repeat, manifest=manifest)
    for found in (_figures(con)[COST], _run_figures(con, "run-0")[COST]):
        assert (found["value"], found["reason"]) == (None, reason)
    assert _figures(con)["goodput_requests_per_s"]["value"] == pytest.approx(40)


@pytest.mark.parametrize("hourly", [1e-300, 1e-9, 1e15])
def test_any_other_price_gives_one(con: duckdb.DuckDBPyConnection, add_run: AddRun, hourly: float) -> None:
    cost = {"currency": "EUR", "resources": [{"name": "gpu", "hourly": hourly, "count": 1}]}
    add_run(_answers(), manifest=MANIFEST | {"cost": cost})
    found = _figures(con)[COST]
    assert found["value"] == pytest.approx(hourly / 3600 * 1e6 / 120)
    assert found["lo"] < found["value"] < found["hi"]


@pytest.mark.parametrize("slo", [{"ttft_ms": 100_000}, {}], ids=["far limit", "no limit"])
@pytest.mark.parametrize("name", ["good_fraction", "ok_fraction"])
def test_a_share_far_from_its_limit_has_the_exact_bound(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, slo: dict[str, Any], name: str
) -> None:
    for repeat in range(5):
        add_run(_answers(repeat), run_id=f"run-{repeat}", repeat=repeat, manifest=MANIFEST | {"slo": slo})
    found = _figures(con)[name]
    assert (found["value"], found["hi"], found["settled"]) == (1, None, True)
    assert found["lo"] == pytest.approx(0.025 ** (1 / 200))


def test_a_dead_server_has_the_exact_bound(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([row(i, i * 50, outcome="timeout") for i in range(18)])
    for name in ("good_fraction", "ok_fraction"):
        found = _figures(con)[name]
        assert (found["value"], found["lo"]) == (0, None)
        assert found["hi"] == pytest.approx(1 - 0.025 ** (1 / 18))


def test_failures_alone_do_not_make_an_unknown_tpot_infinite(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    chunks = [(50, "text", None), (60, "text", None)]
    add_run([row(1, 0, chunks), row(2, 100, outcome="timeout")])
    found = _run_figures(con)["tpot_p50_ms"]
    assert (found["value"], found["n"]) == (None, 0)
    assert found["reason"] == ("no counted attempt with two output chunks and a known number of output tokens over one")


def test_failures_make_a_quantile_infinite(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([*_answers(n=9), row(9, 400, outcome="timeout")])
    found = _run_figures(con)
    assert found["e2e_p50_ms"]["value"] is not None
    assert found["e2e_p95_ms"]["value"] is None
    assert found["e2e_p95_ms"]["reason"] == "1 of 10 never came: the quantile lies among them"
    assert found["e2e_ok_p95_ms"]["value"] is not None
    assert (found["e2e_p95_ms"]["n"], found["e2e_ok_p95_ms"]["n"]) == (10, 9)


def test_a_run_without_attempts_has_no_window(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([], measure_start_ns=None, measure_end_ns=None)
    for found in (_figures(con), _run_figures(con)):
        assert all(row["value"] is None and row["reason"] for row in found.values())
        assert found["throughput_requests_per_s"]["reason"] == "the run has no window"


def test_a_window_without_length_has_no_rate(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(_answers(), measure_end_ns=ns(0))
    assert _figures(con)["goodput_requests_per_s"]["reason"] == "the run has no window"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(1, 0, outcome="cancelled")],
        [row(1, 0, outcome="timeout")],
        [row(1, 0, sent=None, outcome="unsent", stream=False)],
        [row(1, 0)],
        [answer(1, 0, n=1)],
        [answer(1, 0, gap=0)],
        [answer(1, 0)],
        [*_answers(n=5), row(9, 400, outcome="timeout")],
    ],
    ids=["empty", "excluded", "failed", "unsent", "silent", "one token", "no gap", "one", "some"],
)
@pytest.mark.parametrize("k", [1, 3])
def test_nothing_is_ever_nan_infinite_or_silent(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, rows: list[Row], k: int
) -> None:
    for repeat in range(k):
        add_run(rows, run_id=f"run-{repeat}", repeat=repeat)
    for frame in (figures(con, "study-1"), run_figures(con, "study-1")):
        for one in frame.to_dict("records"):
            numbers = [one[name] for name in ("value", "lo", "hi", "n_eff") if name in one]
            assert all(number is None or math.isfinite(number) for number in numbers), one
            assert one["value"] is not None or one["reason"], one
            assert one.get("lo") is None or one.get("hi") is None or one["lo"] <= one["hi"], one
        text = dump_text(frame.to_dict("records"))
        assert len(json.loads(text)) == len(frame)


@pytest.mark.parametrize("read", [figures, run_figures])
def test_no_such_study(con: duckdb.DuckDBPyConnection, read: Any) -> None:
    with pytest.raises(UsageError, match="no study 'nope'"):
        read(con, "nope")
