"""A real study of the reference engine: every tick accounted for, deterministic, judged."""

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.load.scripted import ok_script, reply, serving
from tfbench.core.errors import EndpointError, Interrupted
from tfbench.engine.config import EngineConfig
from tfbench.engine.process import RunningEngine, start_engine
from tfbench.engine.step_time import StepTime
from tfbench.ledger.bundle import read_bundle
from tfbench.manifest import Manifest, RunPlan, expand, freeze, load_manifest
from tfbench.metrics import attempt_figures, run_figures
from tfbench.report import build_report, json_document
from tfbench.schedule import Schedule, build_schedule
from tfbench.study import RunEnd, Silent, StudyDone, run_study
from tfbench.study.notes import sample_size_notes
from tfbench.warehouse import Warehouse
from tfbench.workload import build_workload


@pytest.fixture(scope="module")
def store(study: StudyDone) -> Iterator[Warehouse]:
    with Warehouse.open(study.warehouse, read_only=True) as opened:
        yield opened


def plans_and_schedules(manifest: Manifest) -> list[tuple[RunPlan, Schedule]]:
    frozen = freeze(manifest).manifest
    found = []
    for plan in expand(frozen):
        schedule = build_schedule(frozen, plan)
        assert isinstance(schedule, Schedule)
        found.append((plan, schedule))
    return found


def test_rows_equal_the_schedule_and_each_has_an_outcome(store: Warehouse, manifest: Manifest) -> None:
    rows = store.con.execute(
        "SELECT r.load_value, r.repeat, r.schedule_sha256, count(*), count(outcome), min(attempt_id), max(attempt_id)"
        ' FROM attempts JOIN runs r USING (run_id) WHERE "try" = 0 GROUP BY ALL'
    ).fetchall()
    expected = {
        (plan.load_value, plan.repeat, s.sha256, n := len(s.offsets_ns), n, 0, n - 1)
        for plan, s in plans_and_schedules(manifest)
    }
    assert set(rows) == expected and len(rows) == 4


def test_the_schedules_length_is_recorded(store: Warehouse) -> None:
    rows = store.con.execute(
        "SELECT (observed->>'$.schedule_count')::INTEGER, count(*) FROM attempts JOIN runs USING (run_id)"
        ' WHERE "try" = 0 GROUP BY run_id, observed'
    ).fetchall()
    assert len(rows) == 4 and all(planned == found for planned, found in rows)


def test_what_was_sent_is_what_was_planned(store: Warehouse, manifest: Manifest) -> None:
    frozen = freeze(manifest).manifest
    [(salt,)] = store.con.execute("SELECT DISTINCT observed->'cache'->>'salt' FROM runs").fetchall()
    assert salt
    for plan, schedule in plans_and_schedules(manifest):
        workload = build_workload(frozen, plan, salt)
        rows = store.con.execute(
            "SELECT attempt_id, scheduled_ns, prompt, output_tokens, prompt_tokens FROM attempts a"
            " JOIN runs r USING (run_id) JOIN texts USING (run_id, attempt_id)"
            " WHERE r.load_value = ? AND r.repeat = ? AND a.role = 'load' ORDER BY attempt_id",
            [plan.load_value, plan.repeat],
        ).fetchall()
        assert len(rows) > 5
        start = {scheduled - int(schedule.offsets_ns[attempt]) for attempt, scheduled, *_ in rows}
        assert len(start) == 1
        for attempt, _, prompt, output_tokens, prompt_tokens in rows:
            item = workload.item(attempt)
            assert prompt == item.prompt
            assert output_tokens in (None, item.max_tokens) and prompt_tokens in (None, item.input_tokens)


def test_runs_share_neither_schedule_nor_prompts(store: Warehouse) -> None:
    hashes = store.con.execute("SELECT count(DISTINCT schedule_sha256), count(DISTINCT seed) FROM runs").fetchall()
    assert hashes == [(4, 4)]
    prompts = store.con.execute(
        "SELECT count(prompt_sha256), count(DISTINCT prompt_sha256) FROM attempts WHERE role = 'load'"
    ).fetchall()
    assert prompts[0][0] == prompts[0][1] > 0


def test_the_probe_is_in_the_ledger_but_in_no_figure(store: Warehouse, engine: RunningEngine) -> None:
    rows = store.con.execute(
        "SELECT run_id, \"try\", outcome, output_tokens FROM attempts WHERE role = 'probe'"
    ).fetchall()
    assert len(rows) == 1 and rows[0][1:] == (None, "ok", 2)
    frame = attempt_figures(store.con, store.resolve_study("last"))
    assert -1 not in set(frame["attempt_id"])


def test_the_signal_and_the_figure_of_client_lag_agree(store: Warehouse) -> None:
    frame = run_figures(store.con, store.resolve_study("last"))
    lag = frame[frame["figure"] == "client_lag_p99_ms"].set_index("run_id")["value"]
    for run_id, signals in store.con.execute("SELECT run_id, signals FROM runs").fetchall():
        assert json.loads(signals)["client_lag_p99_ms"]["value"] == pytest.approx(lag[run_id], rel=1e-9)


def test_the_clients_times_lie_in_order_and_after_the_engines(store: Warehouse, engine: RunningEngine) -> None:
    import httpx

    truth = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=30).json()
    sent = {one["request_id"]: one["chunks"] for one in truth["requests"]}
    rows = store.con.execute(
        "SELECT request_id, sent_ns, t_ns, kind, blur_ns, observed"
        " FROM attempts JOIN streams USING (run_id, attempt_id)"
        " JOIN runs USING (run_id) WHERE outcome = 'ok' AND role = 'load'"
    ).fetchall()
    causal = total = 0
    for request_id, sent_ns, times, kinds, blurs, observed in rows:
        assert times == sorted(times) and times[0] > sent_ns
        shift = json.loads(observed)["clock_offset_ns"] - truth["clock"]["offset_ns"]
        left = [
            t + shift
            for t, kind in zip(sent[request_id]["sent_ns"], sent[request_id]["kind"], strict=True)
            if kind == "text"
        ]
        came = [(t, b) for t, kind, b in zip(times, kinds, blurs, strict=True) if kind == "text"]
        assert len(left) == len(came) == 8
        for (t, b), true in zip(came, left, strict=True):
            total += 1
            # The engine stamps before it writes, so a chunk can't arrive before its stamp, however busy the machine.
            causal += true <= t + 100_000
            assert 0 <= b <= t - sent_ns
    assert causal == total > 0


def test_judged_and_reported(store: Warehouse, study: StudyDone) -> None:
    kinds = store.con.execute("SELECT kind, count(*) FROM verdicts GROUP BY kind ORDER BY kind").fetchall()
    assert kinds == [("stability", 4), ("validity", 4)]
    document = json_document(build_report(store, study.study_id))
    assert len(document["runs"]) == 4
    assert not any(isinstance(f["value"], float) and not math.isfinite(f["value"]) for f in document["figures"])


def test_bundles_stand_on_their_own(study: StudyDone, tmp_path: Path) -> None:
    folder = study.warehouse.with_name("w.bundles") / study.study_id
    bundles = sorted(path for path in folder.iterdir())
    assert len(bundles) == 4 and all(path.is_dir() for path in bundles), "no spool is left behind"
    with Warehouse.open(tmp_path / "again.duckdb") as again:
        for bundle in bundles:
            again.ingest(bundle)
        assert again.con.execute("SELECT count(*) FROM runs").fetchall() == [(4,)]
    assert read_bundle(bundles[0]).manifest["name"] == "small"


def test_the_same_manifest_twice_is_the_same_test_in_other_words(
    manifest: Manifest, study: StudyDone, tmp_path: Path
) -> None:
    """Same schedule hashes; no prompt that the server has seen before."""
    again = run_study(manifest, tmp_path / "w.duckdb", reruns=0)
    found = []
    for done in (study, again):
        with Warehouse.open(done.warehouse, read_only=True) as store:
            found.append(
                store.con.execute(
                    "SELECT r.load_value, r.repeat, r.schedule_sha256, r.workload_id,"
                    " list(prompt_sha256 ORDER BY attempt_id)"
                    " FILTER (phase <> 'drain') FROM attempts JOIN runs r USING (run_id) WHERE role = 'load'"
                    " GROUP BY ALL ORDER BY ALL"
                ).fetchall()
            )
    assert [row[:-1] for row in found[0]] == [row[:-1] for row in found[1]]
    seen, fresh = ({sha for row in rows for sha in row[-1]} for rows in found)
    assert seen and fresh and not seen & fresh


class _StopAfter(Silent):
    """Presses Ctrl-C once the second run is under way."""

    def __init__(self) -> None:
        self.ends: list[RunEnd] = []
        self.pressed = False

    def progress(self, plan: RunPlan, counts: dict[str, float]) -> None:
        if plan.order_index == 1 and counts.get("sent", 0) > 3 and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)

    def run_ended(self, end: RunEnd) -> None:
        self.ends.append(end)


def test_ctrl_c_keeps_what_finished_and_marks_the_run(manifest: Manifest, tmp_path: Path) -> None:
    watcher = _StopAfter()
    with pytest.raises(Interrupted, match="2 of 4 runs"):
        run_study(manifest, tmp_path / "w.duckdb", watcher, reruns=0)
    assert [end.status for end in watcher.ends] == ["complete", "interrupted"]
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        assert store.con.execute("SELECT status FROM runs ORDER BY order_index").fetchall() == [
            ("complete",),
            ("interrupted",),
        ]
        verdict = store.con.execute(
            "SELECT verdict FROM verdicts JOIN runs USING (run_id) WHERE kind = 'validity' AND status = 'interrupted'"
        ).fetchall()
        assert verdict == [("INVALID",)]
        rows = store.con.execute(
            "SELECT count(*) FROM attempts JOIN runs USING (run_id) WHERE status = 'interrupted' AND role = 'load'"
        ).fetchall()
    [_, (_, schedule), *_] = plans_and_schedules(manifest)
    assert rows == [(len(schedule.offsets_ns),)]


class _Hammering(_StopAfter):
    """Presses Ctrl-C over and over."""

    def progress(self, plan: RunPlan, counts: dict[str, float]) -> None:
        if plan.order_index == 0 and counts.get("sent", 0) > 3:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)


def test_however_often_ctrl_c_is_pressed_facts_are_kept(manifest: Manifest, tmp_path: Path) -> None:
    watcher = _Hammering()
    with pytest.raises(Interrupted, match="1 of 4 runs"):
        run_study(manifest, tmp_path / "w.duckdb", watcher, reruns=0)
    assert [end.status for end in watcher.ends] == ["interrupted"]
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        [(sent,)] = store.con.execute("SELECT count(*) FROM attempts WHERE sent_ns IS NOT NULL").fetchall()
    assert sent > 3


def test_an_endpoint_that_dies_ends_the_study_with_its_facts(manifest_path: Path, tmp_path: Path) -> None:
    with start_engine(EngineConfig(step_time=StepTime(base_ms=4.0))) as engine:
        manifest = load_manifest(manifest_path, url=engine.url)

        class Killer(Silent):
            def run_ended(self, end: RunEnd) -> None:
                engine.stop()

        with pytest.raises(EndpointError, match="the endpoint is gone.*2 of 4 runs are kept") as caught:
            run_study(manifest, tmp_path / "w.duckdb", Killer(), reruns=0)
    assert caught.value.exit_code == 5
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        assert store.con.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]


def test_a_server_that_only_refuses_is_endpoint_trouble_with_facts(manifest_path: Path, tmp_path: Path) -> None:
    def script(index: int, request: bytes) -> list[Any]:
        # The probe (and the look at the models before it) is served; the load is not.
        if b"Say hello." in request:
            return list(ok_script(index, request))
        return reply("401 Unauthorized", b'{"error": {"message": "Incorrect API key provided: s3cr3t-t0ken"}}')

    os.environ["TFBENCH_TEST_KEY"] = "s3cr3t-t0ken"
    with serving(script) as server:
        header = 'endpoint.headers={ Authorization = "env:TFBENCH_TEST_KEY" }'
        sets = [header, "load.repeats=1", "model.name=m"]
        manifest = load_manifest(manifest_path, sets, f"http://127.0.0.1:{server.port}/v1")
        with pytest.raises(EndpointError, match="no request was answered well") as caught:
            run_study(manifest, tmp_path / "w.duckdb", reruns=0)
    assert "s3cr3t" not in str(caught.value) and "[redacted]" in str(caught.value)
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        errors = store.con.execute("SELECT DISTINCT error FROM attempts WHERE outcome = 'http_error'").fetchall()
    assert errors == [("HTTP 401: Incorrect API key provided: [redacted]",)]
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"s3cr3t-t0ken" not in path.read_bytes(), path


def test_an_endpoint_that_is_not_there_costs_no_run(manifest: Manifest, tmp_path: Path) -> None:
    gone = manifest.model_copy(
        update={"endpoint": manifest.endpoint.model_copy(update={"url": "http://127.0.0.1:9/v1"})}
    )
    with pytest.raises(EndpointError, match="can't connect"):
        run_study(gone, tmp_path / "w.duckdb", reruns=0)
    assert not list(tmp_path.glob("w.bundles/*"))


def test_sample_size_notes_say_what_n_carries(manifest: Manifest) -> None:
    notes = sample_size_notes(manifest, expand(manifest))
    assert [note.split(":")[0] for note in notes] == ["load 10", "load 20"]
    assert "P50 takes load.duration_s = 2" in notes[0] and "P99 takes load.duration_s = 50, or 5 repeats" in notes[1]
    five = manifest.model_copy(update={"load": manifest.load.model_copy(update={"duration_s": 8.0, "repeats": 5})})
    # 5 x 80 requests hold 20 beyond P95, 4 beyond P99; 10 are needed.
    assert (
        "5 runs of about 80 requests are too short for both bounds of P99 (" in sample_size_notes(five, expand(five))[0]
    )
    many = manifest.model_copy(update={"load": manifest.load.model_copy(update={"duration_s": 500.0})})
    assert sample_size_notes(many, expand(many)) == ()


def test_offsets_are_what_the_hash_speaks_of(manifest: Manifest) -> None:
    for _, schedule in plans_and_schedules(manifest):
        assert schedule.offsets_ns.dtype == np.int64
        assert np.all(np.diff(schedule.offsets_ns) >= 0)
