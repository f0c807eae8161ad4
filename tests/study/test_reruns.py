"""Runs that a slow client spoiled are made again: which, how often, and what is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.load.scripted import ok_script, serving
from tfbench.manifest import expand, parse_manifest
from tfbench.study import Silent, run_study
from tfbench.study import record as recording
from tfbench.study.arms import open_arms, run_arms
from tfbench.study.reruns import most_again, runs_again
from tfbench.verdict.spoiled import Use, use_of
from tfbench.warehouse import Warehouse

DOCUMENT = {
    "name": "again",
    "model": {"name": "m"},
    "workload": {"input_tokens": 4, "output_tokens": 2},
    "load": {"rates": [40, 80], "duration_s": 0.1, "warmup_s": 0, "drain_s": 1, "repeats": 2},
}
Spoil = Callable[[Callable[[int], bool]], None]


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """`spoil(which)`: the runs that `which` names by their place in time were spoiled, the others are fit."""

    def set_up(which: Callable[[int], bool]) -> None:
        seen: list[str] = []

        def judged(con: Any, run_id: str, *rest: Any) -> Use:
            del con, rest
            seen.append(run_id)
            bad = which(len(seen) - 1)
            return Use(fit=not bad, transient=bad)

        monkeypatch.setattr(recording, "use_of", judged)

    return set_up


class Told(Silent):
    def __init__(self) -> None:
        self.added: list[tuple[int, str]] = []

    def runs_added(self, count: int, why: str) -> None:
        self.added.append((count, why))


def made(path: Path) -> list[tuple[float, int, int]]:
    with Warehouse.open(path, read_only=True) as store:
        return store.con.execute("SELECT load_value, repeat, order_index FROM runs ORDER BY order_index").fetchall()


def test_a_spoiled_run_gets_a_further_repeat_of_its_load(spoil: Spoil, tmp_path: Path) -> None:
    spoil(lambda place: place == 1)
    told = Told()
    with serving(ok_script) as server:
        manifest = parse_manifest(DOCUMENT | {"endpoint": {"url": f"http://127.0.0.1:{server.port}/v1"}}, "test")
        done = run_study(manifest, tmp_path / "w.duckdb", told)
    load = expand(manifest)[1].load_value
    runs = made(done.warehouse)
    assert (done.runs, done.invalid) == (5, 1) and runs[4] == (load, 2, 4)
    ((count, why),) = told.added
    assert count == 1 and why.startswith("this machine's client was slow in 1 run and spoiled what is asked of it")


@pytest.mark.parametrize(("reruns", "runs"), [(None, 6), (0, 4), (5, 9)])
def test_never_more_than_half_as_many_or_as_asked_for(
    spoil: Spoil, tmp_path: Path, reruns: int | None, runs: int
) -> None:
    spoil(lambda _: True)
    with serving(ok_script) as server:
        manifest = parse_manifest(DOCUMENT | {"endpoint": {"url": f"http://127.0.0.1:{server.port}/v1"}}, "test")
        done = run_study(manifest, tmp_path / "w.duckdb", reruns=reruns)
    assert (done.runs, done.invalid) == (runs, runs)
    assert len(set(made(done.warehouse))) == runs, "each with a place and a repeat of its own"


def test_a_pair_is_made_again_as_a_pair(spoil: Spoil, tmp_path: Path) -> None:
    spoil(lambda place: place in (2, 3))  # both runs of the second pair
    told = Told()
    with serving(ok_script) as server:
        manifest = parse_manifest(DOCUMENT | {"endpoint": {"url": f"http://127.0.0.1:{server.port}/v1"}}, "test")
        arms = run_arms(open_arms(manifest, manifest, tmp_path / "w.duckdb"), told)
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        rows = store.con.execute("SELECT arm, load_value, repeat, seed FROM runs ORDER BY measure_start_ns").fetchall()
    assert len(rows) == 10 and [count for count, _ in told.added] == [2]
    (first, second) = rows[8:]
    assert {first[0], second[0]} == {"base", "candidate"} and first[1:] == second[1:]
    assert first[1] == rows[2][1] and first[2] == 2 and arms.repeats == 3


def test_which_repeats_follow() -> None:
    manifest = parse_manifest(DOCUMENT | {"endpoint": {"url": "http://127.0.0.1:9/v1"}}, "test")
    plans = list(expand(manifest))
    again = runs_again(manifest, [80.0, 40.0, 80.0], plans, most=2)
    assert sorted((plan.load_value, plan.repeat) for plan in again) == [(40.0, 2), (80.0, 2)]
    assert [plan.order_index for plan in again] == [4, 5]
    more = runs_again(manifest, [80.0, 80.0], [*plans, *again], most=9)
    assert sorted((plan.load_value, plan.repeat) for plan in more) == [(80.0, 3), (80.0, 4)]
    assert len({plan.seed for plan in (*plans, *again, *more)}) == 8
    assert runs_again(manifest, [], plans, most=2) == [] and most_again(5, None) == 3 and most_again(5, 0) == 0


OVER, FINE = {"ok": False, "value": 9.0}, {"ok": True, "value": 0.0}


@pytest.mark.parametrize(
    ("signals", "status", "stands", "use"),
    [
        ({"client_lag_p99_ms": FINE}, "complete", False, Use(True, False)),
        ({"client_lag_p99_ms": OVER}, "complete", True, Use(True, False)),
        ({"client_lag_p99_ms": OVER}, "complete", False, Use(False, True)),
        ({"client_lag_p99_ms": OVER, "sent_share": OVER}, "complete", True, Use(False, False)),
        ({"clock_steps": OVER}, "complete", True, Use(False, True)),
        ({"dead_workers": OVER}, "failed", True, Use(False, True)),
        ({"client_lag_p99_ms": OVER}, "interrupted", True, Use(False, False)),
        ({"scheduled_requests": OVER}, "complete", True, Use(False, False)),
    ],
)
def test_what_a_run_is_good_for(signals: dict[str, Any], status: str, stands: bool, use: Use) -> None:
    assert use_of(None, "run-1", signals, status, lambda _con, _run_id: stands) == use
