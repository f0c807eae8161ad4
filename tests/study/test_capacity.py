"""Capacity searches end to end: in virtual time, where the limit is known, and one against a served engine."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.study.conftest import until_fit
from tfbench.core.errors import EndpointError, Interrupted, UsageError
from tfbench.engine.config import EngineConfig
from tfbench.engine.process import RunningEngine
from tfbench.engine.step_time import StepTime
from tfbench.manifest import Frozen, Manifest, RunPlan, freeze, parse_manifest
from tfbench.report import build_report, json_document
from tfbench.stats.search import Answer, Limit, Status
from tfbench.study.capacity import (
    Capacity,
    MakeRun,
    Row,
    SilentSearch,
    advice,
    at_load,
    expected,
    find_capacity,
    reach_notes,
    search,
    search_plan,
    simulate_capacity,
)
from tfbench.study.record import RunDone, new_study
from tfbench.study.simulate import System, simulate_run
from tfbench.study.target import Target
from tfbench.warehouse import Warehouse

ENGINE = EngineConfig(max_num_seqs=4, max_model_len=200, step_time=StepTime(base_ms=10.0, prefill_token_ms=0.0))
"""A step takes 10 ms and serves up to 4; answers of 10 tokens: 40 requests per second at most."""
HALF = Target("good_fraction", 0.5)
LOAD = {"rates": [10], "duration_s": 4, "warmup_s": 0.5, "drain_s": 1, "repeats": 1, "seed": 5}

START = {"rates": [7]}
"""Doubled, it doesn't meet the limit itself."""


def manifest(load: dict[str, Any] | None = None, **tables: Any) -> Manifest:
    document = {
        "name": "cap",
        "model": {"name": "tfbench-engine"},
        "endpoint": {"adapter": "tfbench"},
        "workload": {"input_tokens": 8, "output_tokens": 10},
        "load": {key: value for key, value in (LOAD | (load or {})).items() if value is not None},
        "slo": {"ttft_ms": 150},
    }
    return parse_manifest(document | tables, "test")


def simulated(folder: Path, asked: Manifest, target: Target = HALF, **more: Any) -> Capacity:
    return simulate_capacity(asked, folder / "w.duckdb", target, System("four", ENGINE), **more)


class Told(SilentSearch):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.answers: list[Answer] = []
        self.notes: tuple[str, ...] = ()

    def search_started(self, study_id: str, name: str, target: Target, plan: Any, notes: tuple[str, ...]) -> None:
        self.notes = notes

    def probe_ended(self, row: Row, so_far: Answer) -> None:
        self.rows.append(row)
        self.answers.append(so_far)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Capacity, Told]:
    told = Told()
    return simulated(tmp_path_factory.mktemp("capacity"), manifest(START), watcher=told, max_runs=18), told


def test_the_limit_of_a_simulated_engine_is_found(found: tuple[Capacity, Told]) -> None:
    answer = found[0].answer
    # 4 sequences per 10 tokens of 10 ms, less what joining a batch costs.
    assert answer.lo is not None and answer.hi is not None
    assert 10 < answer.lo < 40 < answer.hi + 10 and answer.hi / answer.lo <= 4
    assert answer.status in ("found", "wide") and answer.limit == "server"


def test_every_load_has_a_row_and_progress_was_told(found: tuple[Capacity, Told]) -> None:
    capacity, told = found
    loads = [row.load for row in capacity.rows]
    assert loads == sorted(set(loads)) and {row.load for row in told.rows} == set(loads)
    assert sum(row.runs + row.unfit for row in capacity.rows) == capacity.answer.runs <= 18
    assert all(row.counted > 0 and 1 <= row.runs <= 16 for row in capacity.rows)
    known = {one.lo for one in told.answers} | {one.hi for one in told.answers}
    assert {capacity.answer.lo, capacity.answer.hi} <= known
    assert any("to show a share of 0.5" in note for note in told.notes)


def test_what_width_to_expect_is_said_before_the_first_run_and_kept(found: tuple[Capacity, Told]) -> None:
    capacity, told = found
    said = told.notes[-1]
    assert "with runs of 28 requests (at 7 requests/s) and at most 18 runs" in said and "a rough figure" in said
    assert capacity.expected is not None and f"within a factor of about {capacity.expected.width:.3g};" in said
    assert capacity.document()["expected"]["width"] == capacity.expected.width


def test_both_ends_rest_on_three_runs_or_more_and_single_runs_decide_nothing(found: tuple[Capacity, Told]) -> None:
    capacity = found[0]
    ends = [row for row in capacity.rows if row.load in (capacity.answer.lo, capacity.answer.hi)]
    assert len(ends) == 2 and all(row.runs >= 3 and row.met is not None for row in ends)
    lone = [row for row in capacity.rows if row.runs == 1]
    assert lone and all(row.met is None and row.scouted is not None for row in lone)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"duration_s": 1000}, "10,000 requests (at 10 requests/s) and at most 60 runs"),
        ({"duration_s": None, "count": 300}, "runs of 300 requests and at most 60 runs"),
        ({"duration_s": None, "count": 300}, "for 1.1 make runs"),
    ],
)
def test_the_expected_width_follows_the_length_of_runs(changes: dict[str, Any], told: str) -> None:
    frozen, plan = freeze(manifest(changes)), search_plan(manifest(changes), low=None, high=None)
    (note,) = reach_notes(expected(frozen, HALF, plan), frozen, plan)
    assert told in note
    users = manifest({"mode": "closed", "rates": None, "concurrency": [2]})
    assert reach_notes(expected(freeze(users), HALF, plan), freeze(users), plan) == ()


def answered(status: Status, lo: float | None, hi: float | None, limit: Limit | None = "server") -> Answer:
    return Answer(lo, hi, 0.9, status, limit, None if status == "found" else "why", 60)


@pytest.mark.parametrize(
    ("answer", "max_runs", "told"),
    [
        (answered("wide", 8.0, 10.0), 60, "make runs 10 times as long (load.duration_s); where whole runs differ"),
        (answered("wide", 8.0, 10.0), 60, "allow 120 runs with --max-probes 120"),
        (answered("wide", 8.0, 10.0), 20, "allow 60 runs with --max-probes 60"),
        (answered("wide", 1.0, 64.0), 60, "start nearer to the limit, at 8"),
        (answered("open", None, 10.0, None), 60, "start nearer to the limit, make runs 4 times as long"),
        (answered("open", 10.0, None, "client"), 60, "give the client more (--workers"),
        (answered("open", 4e4, None, "range"), 60, "search higher with --hi 81920"),
        (answered("open", None, 1.0, "range"), 60, "search lower with --lo"),
    ],
)
def test_every_answer_but_found_says_what_to_do(answer: Answer, max_runs: int, told: str) -> None:
    plan = search_plan(manifest(), low=None, high=None, max_runs=max_runs)
    said = advice(answer, plan, freeze(manifest()))
    assert said is not None and told in said


def test_a_found_answer_asks_for_nothing_and_many_runs_look_once_more() -> None:
    plan = search_plan(manifest(), low=None, high=None)
    assert advice(answered("found", 8.0, 8.5), plan, freeze(manifest())) is None
    assert search_plan(manifest(), low=None, high=None, max_runs=120).looks == (*plan.looks, 2 * plan.looks[-1])


def test_its_runs_are_runs_and_the_report_knows_the_answer(found: tuple[Capacity, Told]) -> None:
    capacity = found[0]
    with Warehouse.open(capacity.warehouse, read_only=True) as store:
        data = build_report(store, capacity.study_id)
        rows = store.con.execute("SELECT count(*), count(DISTINCT seed), any_value(origin) FROM runs").fetchall()
        kept = store.con.execute("SELECT verdict, reasons FROM verdicts WHERE kind = 'capacity'").fetchall()
    assert rows == [(capacity.answer.runs, capacity.answer.runs, "simulated")]
    assert len(kept) == 1 and kept[0][0] == capacity.answer.status
    assert json.loads(kept[0][1]) == json.loads(json.dumps(capacity.document()))
    assert data.capacity is not None and (data.capacity.lo, data.capacity.hi) == (
        capacity.answer.lo,
        capacity.answer.hi,
    )
    document = json_document(data)
    assert document["capacity"]["target"] == "good_fraction ≥ 0.5"
    assert [point["load_value"] for point in document["operating_curve"]] == [row.load for row in capacity.rows]


def test_a_search_repeats_to_the_last_bit(found: tuple[Capacity, Told], tmp_path: Path) -> None:
    again = simulated(tmp_path, manifest(START), max_runs=3)
    assert again.rows == tuple(sorted(found[1].rows[:3], key=lambda row: row.load))


def test_users_are_searched_too(tmp_path: Path) -> None:
    closed = {"mode": "closed", "rates": None, "concurrency": [2], "duration_s": 6}
    capacity = simulated(tmp_path, manifest(closed, slo={"e2e_ms": 160}), max_runs=8)
    assert capacity.unit == "users"
    # Four run at once; a fifth waits for 25 ms on average, a ninth for as long as an answer takes.
    assert capacity.answer.lo is not None and 4 <= capacity.answer.lo <= 8
    assert all(row.load == int(row.load) and row.unstable == 0 for row in capacity.rows)


def test_below_one_request_a_second_runs_are_made_long_enough(tmp_path: Path) -> None:
    slow = replace(ENGINE, max_num_seqs=1, step_time=StepTime(base_ms=1000.0, prefill_token_ms=0.0))
    asked = manifest({"rates": [0.01], "duration_s": 300}, slo={"ttft_ms": 20_000})
    capacity = simulate_capacity(
        asked, tmp_path / "w.duckdb", Target("good_fraction", 0.8), System("slow", slow), max_runs=5
    )
    # 10 tokens at one a second: 0.1 requests per second at most.
    assert capacity.answer.lo is not None and 0.01 <= capacity.answer.lo < 0.1
    assert capacity.answer.hi is None or 0.04 < capacity.answer.hi <= 0.2
    assert capacity.rows[0].counted >= 30


@pytest.mark.parametrize(
    ("changes", "target", "bounds", "ends", "told"),
    [
        (
            {"workload": {"input_tokens": 500, "output_tokens": 10}},
            HALF,
            {"low": 2.0},
            (None, 2.0),
            "even at the lowest",
        ),
        ({}, HALF, {"high": 20.0}, (20.0, None), "met up to the highest"),
        ({"slo": {"ttft_ms": 0.001}}, HALF, {"low": 5.0}, (None, 5.0), "even at the lowest"),
        ({}, Target("ttft_p95_ms", 150.0), {"high": 12.0}, (12.0, None), "met up to the highest"),
    ],
    ids=["all failed", "never reached", "always too late", "quantile met"],
)
def test_one_sided_answers_say_why(
    changes: dict[str, Any], target: Target, bounds: dict[str, float], ends: tuple[Any, Any], told: str, tmp_path: Path
) -> None:
    answer = simulated(tmp_path, manifest(**changes), target, **bounds).answer
    assert (answer.lo, answer.hi) == ends
    assert (answer.status, answer.limit) == ("open", "range")
    assert answer.reason is not None and told in answer.reason


def wrapped(folder: Path, change: Callable[[RunDone, float], RunDone], **more: Any) -> Capacity:
    """A simulated search whose finished runs are changed before they are kept."""
    asked = manifest()
    study = new_study(freeze(asked), folder / "w.duckdb", {"name": "here"})

    def make(frozen: Frozen, run: RunPlan, stop: Callable[[], int]) -> RunDone:
        done = simulate_run(replace(study, frozen=frozen), run, System("four", ENGINE), SilentSearch(), stop)
        return change(done, run.load_value)

    maker: MakeRun = make
    plan = search_plan(asked, low=None, high=None, max_runs=8)
    return search(study, maker, folder / "w.duckdb", HALF, plan, SilentSearch(), **more)


def test_runs_the_client_spoilt_are_the_clients_limit(tmp_path: Path) -> None:
    def unsent(done: RunDone, load: float) -> RunDone:
        signal_now = {"value": 0.9, "limit": 0.99, "relation": ">=", "unit": "", "ok": load < 15}
        return replace(done, signals={"sent_share": signal_now})

    capacity = wrapped(tmp_path, unsent)
    assert capacity.answer.limit == "client" and capacity.answer.hi is None
    assert capacity.answer.lo is not None and 10 <= capacity.answer.lo < 15
    assert capacity.answer.reason is not None and "the client, not the server" in capacity.answer.reason
    spoilt = [row for row in capacity.rows if row.load >= 15]
    assert spoilt and all(row.met is None and row.unfit >= 1 and row.runs == 0 for row in spoilt)


def test_a_slow_client_that_moved_nothing_limits_nothing(tmp_path: Path) -> None:
    def slow(done: RunDone, load: float) -> RunDone:
        over = {"value": 9.0, "limit": 1.0, "relation": "<=", "unit": "ms", "ok": False}
        return replace(done, signals={"client_lag_p99_ms": over})

    capacity = wrapped(tmp_path, slow)
    assert capacity.answer.limit != "client" and all(row.unfit == 0 and row.runs for row in capacity.rows)


def kept_answer(folder: Path) -> dict[str, Any]:
    with Warehouse.open(folder / "w.duckdb", read_only=True) as store:
        [(reasons,)] = store.con.execute("SELECT reasons FROM verdicts WHERE kind = 'capacity'").fetchall()
    return dict(json.loads(reasons))


def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    def press(done: RunDone, load: float) -> RunDone:
        if load > 15:
            signal.raise_signal(signal.SIGINT)
        return done

    with pytest.raises(Interrupted, match="2 runs are kept as study"):
        wrapped(tmp_path, press)
    assert kept_answer(tmp_path)["lo"] == 10.0 and "interrupted" in kept_answer(tmp_path)["reason"]


def test_a_dead_endpoint_is_told_with_what_was_found(tmp_path: Path) -> None:
    def gone(done: RunDone, load: float) -> RunDone:
        return replace(done, tried={"connect_error": 5}, first_error="refused") if load > 15 else done

    with pytest.raises(EndpointError, match=r"the endpoint is gone \(refused\); 2 runs"):
        wrapped(tmp_path, gone)
    assert kept_answer(tmp_path)["lo"] == 10.0


def test_a_run_that_would_exceed_the_time_is_not_begun(tmp_path: Path) -> None:
    capacity = wrapped(tmp_path, lambda done, load: done, budget_s=4.6)
    assert capacity.answer.lo == 10.0 and capacity.answer.runs == 1
    assert capacity.answer.reason is not None and "the budget of 4.6 s is spent" in capacity.answer.reason
    with pytest.raises(UsageError, match=r"--budget-s 2: one run at 10 takes 4.5 s"):
        wrapped(tmp_path, lambda done, load: done, budget_s=2.0)


@pytest.mark.parametrize(
    ("load", "bounds", "told"),
    [
        ({"ramp": {"to": 20}}, {}, "load.ramp"),
        ({"rates": ["inf"], "count": 10, "duration_s": None, "warmup_s": 0}, {}, "begins with inf"),
        ({}, {"low": 5.0, "high": 2.0}, "--lo 5 lies above --hi 2"),
        ({}, {"low": 0.0}, "--lo 0: must be a load above 0"),
        ({}, {"high": float("nan")}, "--hi nan"),
        ({}, {"low": 1e12}, "at most"),
        ({"mode": "closed", "rates": None, "concurrency": [2]}, {"low": 1.5}, "whole users"),
    ],
)
def test_what_cannot_be_searched_is_refused(load: dict[str, Any], bounds: dict[str, float], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        search_plan(manifest(load), **({"low": None, "high": None} | bounds))


def test_a_probe_differs_in_its_load_and_length_alone() -> None:
    frozen = freeze(manifest())
    probe = at_load(frozen, 2.0, 20)
    assert (probe.manifest.load.rates, probe.manifest.load.duration_s) == ((2.0,), 10.0)
    assert (probe.document, probe.workload_id, probe.manifest_id) == (
        frozen.document,
        frozen.workload_id,
        frozen.manifest_id,
    )
    longer = at_load(freeze(manifest({"count": 8, "duration_s": None})), 3.0, 20)
    assert longer.manifest.load.count == 20


def test_a_served_engine_is_searched_in_real_time(engine: RunningEngine, tmp_path: Path) -> None:
    served = {"endpoint": {"adapter": "tfbench", "url": engine.url}, "slo": {"ttft_ms": 2000}}
    asked = manifest({"rates": [20], "duration_s": 1, "warmup_s": 0.2}, **served)
    capacity = until_fit(
        lambda number: find_capacity(asked, tmp_path / f"{number}.duckdb", HALF, high=40.0, max_runs=6),
        lambda found: found.answer.limit != "client",
    )
    assert capacity.answer.lo == 40.0 and capacity.answer.limit == "range"
    assert [(row.met, row.scouted) for row in capacity.rows] == [(None, True), (True, None)]
