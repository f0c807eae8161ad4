"""Simulated studies: a measured one's contract, in the same ledger, marked, and repeatable to the last bit."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.study.conftest import TEXT
from tfbench.core.errors import Interrupted, StorageError, UsageError
from tfbench.engine.config import EngineConfig
from tfbench.engine.misbehave import Misbehaviour
from tfbench.engine.step_time import StepTime
from tfbench.manifest import Manifest, expand, freeze, load_manifest
from tfbench.report import build_report, json_document
from tfbench.report.html import html_report
from tfbench.schedule import Schedule, build_schedule
from tfbench.study import RunEnd, Silent, StudyDone, StudyPlan
from tfbench.study import simulate as simulating
from tfbench.study.simulate import System, simulate_study
from tfbench.study.virtual_client import START_NS
from tfbench.warehouse import Warehouse

REFERENCE = System("reference", EngineConfig(step_time=StepTime(base_ms=4.0)))
INGRESS_NS = round(REFERENCE.config.ingress_us * 1_000)
EGRESS_NS = round(REFERENCE.config.egress_us * 1_000)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    path = tmp_path_factory.mktemp("simulated") / "small.toml"
    path.write_text(TEXT)
    return load_manifest(path)


def with_load(manifest: Manifest, **load: Any) -> Manifest:
    """`manifest` with another load table."""
    return manifest.model_copy(update={"load": type(manifest.load).model_validate(load)})


@pytest.fixture(scope="module")
def brief(manifest: Manifest) -> Manifest:
    """One run of it."""
    return with_load(manifest, rates=[20], duration_s=1, warmup_s=0, drain_s=1, repeats=1)


@pytest.fixture(scope="module")
def done(manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> StudyDone:
    return simulate_study(manifest, tmp_path_factory.mktemp("w") / "w.duckdb", [REFERENCE])


@pytest.fixture(scope="module")
def store(done: StudyDone) -> Iterator[Warehouse]:
    with Warehouse.open(done.warehouse, read_only=True) as opened:
        yield opened


def test_runs_are_those_of_the_frozen_manifest(store: Warehouse, manifest: Manifest) -> None:
    frozen = freeze(manifest)
    expected = set()
    for plan in expand(frozen.manifest):
        schedule = build_schedule(frozen.manifest, plan)
        assert isinstance(schedule, Schedule)
        expected.add((plan.load_value, plan.repeat, plan.order_index, plan.seed, schedule.sha256))
    rows = store.con.execute("SELECT load_value, repeat, order_index, seed, schedule_sha256 FROM runs").fetchall()
    assert set(rows) == expected and len(rows) == 4
    ids = store.con.execute("SELECT DISTINCT manifest_id, workload_id, system_id, origin, status, arm FROM runs")
    assert ids.fetchall() == [(frozen.manifest_id, frozen.workload_id, frozen.system_id, "simulated", "complete", None)]


def test_attempts_are_the_schedule_and_the_client_costs_nothing(store: Warehouse, manifest: Manifest) -> None:
    frozen = freeze(manifest).manifest
    for plan in expand(frozen):
        schedule = build_schedule(frozen, plan)
        assert isinstance(schedule, Schedule)
        rows = store.con.execute(
            "SELECT attempt_id, scheduled_ns, phase FROM attempts JOIN runs USING (run_id)"
            " WHERE load_value = ? AND repeat = ? ORDER BY attempt_id",
            [plan.load_value, plan.repeat],
        ).fetchall()
        assert [(i, START_NS + offset) for i, offset in enumerate(schedule.offsets_ns.tolist())] == [
            row[:2] for row in rows
        ]
    wrong = store.con.execute(
        "SELECT count(*) FROM attempts WHERE outcome <> 'unsent' AND (dispatched_ns <> scheduled_ns"
        " OR sent_ns <> scheduled_ns OR stamp_source <> 'simulated' OR new_connection OR prompt_sha256 IS NOT NULL)"
    ).fetchall()
    assert wrong == [(0,)]
    signals = [json.loads(text) for (text,) in store.con.execute("SELECT signals FROM runs").fetchall()]
    assert {one["client_lag_p99_ms"]["value"] for one in signals} == {0}
    assert {one["blurred_chunk_share"]["value"] for one in signals} == {0}
    assert {one["worker_cpu_max_share"]["ok"] for one in signals} == {None}


def test_streams_and_stages_tell_the_engines_truth(store: Warehouse) -> None:
    rows = store.con.execute(
        "SELECT a.request_id, a.sent_ns, a.first_byte_ns, a.end_ns, a.output_tokens,"
        " s.t_ns, s.kind, s.tokens, s.blur_ns"
        " FROM attempts a JOIN streams s USING (run_id, attempt_id) WHERE outcome = 'ok'"
    ).fetchall()
    assert len(rows) > 60
    stages: dict[str, dict[str, tuple[int, int, Any]]] = {}
    for request_id, stage, start, end, attrs in store.con.execute(
        "SELECT request_id, stage, start_ns, end_ns, attrs FROM server_events WHERE clock = 'simulated'"
    ).fetchall():
        stages.setdefault(request_id, {})[stage] = (start, end, json.loads(attrs))
    for request_id, sent, first_byte, end, tokens, times, kinds, counts, blurs in rows:
        assert len(times) == tokens == 8
        assert (set(kinds), set(counts), set(blurs)) == ({"text"}, {1}, {0})
        # Headers come at once, as the served engine's do.
        assert times == sorted(times) and (first_byte, end) == (sent + INGRESS_NS + EGRESS_NS, times[-1])
        of = stages[request_id]
        assert list(of) == ["queue", "prefill", "decode"]
        assert of["queue"][0] == sent + INGRESS_NS and of["queue"][1] == of["prefill"][0]
        assert of["prefill"][1] == of["decode"][0] == times[0] - EGRESS_NS
        assert of["decode"][1] == end - EGRESS_NS
        assert sum(steps for _, steps in of["decode"][2]["batch"]) == of["decode"][2]["tokens"] == 7


def test_a_lone_request_takes_what_the_profile_says(manifest: Manifest, tmp_path: Path) -> None:
    alone = with_load(manifest, rates=["inf"], count=1, repeats=1)
    done = simulate_study(alone, tmp_path / "w.duckdb", [REFERENCE])
    with Warehouse.open(done.warehouse, read_only=True) as store:
        [(ttft, e2e, prompt)] = store.con.execute(
            "SELECT t_ns[1] - scheduled_ns, end_ns - scheduled_ns, prompt_tokens"
            " FROM attempts JOIN streams USING (run_id, attempt_id)"
        ).fetchall()
    assert ttft == 4_000_000 + prompt * 20_000 + INGRESS_NS + EGRESS_NS
    assert INGRESS_NS > EGRESS_NS > 0
    assert e2e == ttft + 7 * 4_050_000


def figures_of(done: StudyDone) -> Any:
    with Warehouse.open(done.warehouse, read_only=True) as store:
        document = json_document(build_report(store, done.study_id))
    return [document[part] for part in ("summary", "notes", "figures", "outcomes", "errors", "counts")]


def test_the_same_again_to_the_last_bit(manifest: Manifest, done: StudyDone, tmp_path: Path) -> None:
    again = simulate_study(manifest, tmp_path / "w.duckdb", [REFERENCE])
    assert json.dumps(figures_of(done)) == json.dumps(figures_of(again))


def test_the_profile_is_kept_with_the_run(store: Warehouse) -> None:
    [(text,)] = store.con.execute("SELECT DISTINCT observed FROM runs WHERE load_value = 10 AND repeat = 0").fetchall()
    observed = json.loads(text)
    assert observed["profile"] == "reference"
    assert observed["engine"]["step_time"]["base_ms"] == 4.0
    assert (observed["engine"]["ingress_us"], observed["engine"]["egress_us"]) == (750.0, 60.0)
    assert observed["stamps"] == "simulated" and observed["schedule_count"] > 10


def test_reports_say_simulated_everywhere(store: Warehouse, done: StudyDone) -> None:
    data = build_report(store, done.study_id)
    document = json_document(data)
    assert document["study"]["simulated"] is True
    for part in ("runs", "figures", "run_figures"):
        assert {row["origin"] for row in document[part]} == {"simulated"}
    page = html_report(data)
    head, drawings = page.split("<main", 1)
    assert "<title>SIMULATED" in head and head.count('class="stamp"') == 2
    specs = json.loads(drawings.split('id="drawings">', 1)[1].split("</script>", 1)[0])["drawings"]
    assert specs
    for spec in specs.values():
        assert "SIMULATED" in [note["text"] for note in spec["layout"]["annotations"]]
    assert drawings.count("<figcaption>Simulated. ") == len(specs)


class _Watching(Silent):
    def __init__(self) -> None:
        self.plans: list[StudyPlan] = []
        self.ends: list[RunEnd] = []

    def study_started(self, plan: StudyPlan) -> None:
        self.plans.append(plan)

    def run_ended(self, end: RunEnd) -> None:
        self.ends.append(end)


def test_several_profiles_are_arms_of_one_study(manifest: Manifest, tmp_path: Path) -> None:
    systems = [REFERENCE, System("slower", EngineConfig(step_time=StepTime(base_ms=8.0)))]
    watcher = _Watching()
    pairs = with_load(manifest, rates=[10, 20], duration_s=1, warmup_s=0, drain_s=1, repeats=1)
    done = simulate_study(pairs, tmp_path / "w.duckdb", systems, watcher)
    assert [plan.simulated for plan in watcher.plans] == [True]
    assert [end.plan.pair for end in watcher.ends] == [0, 0, 1, 1]
    assert [end.plan.arm for end in watcher.ends] == ["reference", "slower"] * 2
    with Warehouse.open(done.warehouse, read_only=True) as store:
        rows = store.con.execute(
            "SELECT load_value, repeat, count(DISTINCT seed), count(DISTINCT schedule_sha256), count(DISTINCT arm)"
            " FROM runs GROUP BY ALL"
        ).fetchall()
        assert len(rows) == 2 and all(row[2:] == (1, 1, 2) for row in rows)
        figures = json_document(build_report(store, done.study_id))["figures"]
    tpot = {(row["load"], row["arm"]): row["value"] for row in figures if row["figure"] == "tpot_p50_ms"}
    assert tpot["20", "slower"] > tpot["20", "reference"] + 3


def test_profiles_of_one_name_are_refused(brief: Manifest, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='two profiles are named "reference"'):
        simulate_study(brief, tmp_path / "w.duckdb", [REFERENCE, REFERENCE])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        ({"rates": [20], "ramp": {"to": 60}}, "load.ramp moves the rate over the window"),
        ({"rates": [1], "process": "replay", "timestamps": [i / 60 for i in range(240)]}, "recorded arrivals have"),
        ({"rates": [math.inf], "count": 240}, "all requests come at once"),
        ({"rates": [40]}, None),
    ],
)
def test_windows_with_a_course_of_their_own_have_no_warm_up_to_tell(
    manifest: Manifest, load: dict[str, Any], reason: str | None, tmp_path: Path
) -> None:
    timed = {} if "count" in load else {"duration_s": 4, "warmup_s": 0, "drain_s": 1}
    done = simulate_study(with_load(manifest, repeats=2, **timed, **load), tmp_path / "w.duckdb", [REFERENCE])
    with Warehouse.open(done.warehouse, read_only=True) as store:
        data = build_report(store, done.study_id)
    (told,) = json_document(data)["warm_ups"]
    assert told["detected"] is (False if reason is None else None), told
    assert reason is None or told["reason"].startswith(reason)
    assert not data.leaks


def test_misbehaviour_has_no_place_here(brief: Manifest, tmp_path: Path) -> None:
    bad = System("bad", EngineConfig(misbehave=Misbehaviour(shares={"reset": 0.5})))
    with pytest.raises(UsageError, match=r"bad: \[misbehave\]"):
        simulate_study(brief, tmp_path / "w.duckdb", [bad])


def test_nothing_served_well_is_told_with_its_reason(brief: Manifest, tmp_path: Path) -> None:
    tiny = System("tiny", EngineConfig(max_model_len=9))
    with pytest.raises(UsageError, match="no simulated request was answered well .HTTP 400: .* 9 tokens") as caught:
        simulate_study(brief, tmp_path / "w.duckdb", [tiny])
    assert "\n" not in str(caught.value)
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        assert store.con.execute(
            "SELECT DISTINCT outcome, http_status FROM attempts WHERE sent_ns IS NOT NULL"
        ).fetchall() == [("http_error", 400)]


@contextmanager
def _pressed() -> Iterator[Callable[[], int]]:
    yield lambda: 1


def test_ctrl_c_keeps_what_there_is(manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "counted_interrupts", _pressed)
    long = with_load(manifest, rates=[100, 200], duration_s=30, repeats=1)
    with pytest.raises(Interrupted, match="1 of 2 runs are kept.*; see them with: tfbench report "):
        simulate_study(long, tmp_path / "w.duckdb", [REFERENCE])
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        rows = store.con.execute(
            "SELECT status, verdict FROM runs JOIN verdicts USING (run_id) WHERE kind = 'validity'"
        )
        assert rows.fetchall() == [("interrupted", "INVALID")]
        [(n, ok)] = store.con.execute("SELECT count(*), count(*) FILTER (outcome = 'ok') FROM attempts").fetchall()
    assert n > 2_500 and 0 < ok < 1_000


def test_a_warehouse_that_cannot_be_is_told_before(brief: Manifest, tmp_path: Path) -> None:
    (tmp_path / "w.bundles").write_text("in the way")
    with pytest.raises(StorageError, match="can't make the bundles' folder"):
        simulate_study(brief, tmp_path / "w.duckdb", [REFERENCE])


def test_answers_that_are_not_streamed_come_whole(brief: Manifest, tmp_path: Path) -> None:
    whole = brief.model_copy(update={"endpoint": brief.endpoint.model_copy(update={"stream": False})})
    done = simulate_study(whole, tmp_path / "w.duckdb", [REFERENCE])
    with Warehouse.open(done.warehouse, read_only=True) as store:
        rows = store.con.execute(
            "SELECT DISTINCT len(t_ns), t_ns[1] = end_ns, first_byte_ns = end_ns, tokens[1], output_tokens"
            " FROM attempts JOIN streams USING (run_id, attempt_id) WHERE outcome = 'ok'"
        ).fetchall()
    assert rows == [(1, True, True, None, 8)]
