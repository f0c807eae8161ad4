"""Each way in which a server can go wrong, on demand, and what the load side then writes down."""

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tfbench.core.clocks import ClockBase
from tfbench.core.errors import EndpointError
from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.misbehave import MISBEHAVE_HEADER, Kind, Misbehaviour, parse_act
from tfbench.engine.process import RunningEngine, start_engine
from tfbench.load.assemble import assemble
from tfbench.load.job import Limits
from tfbench.load.supervise import run_load
from tfbench.manifest import load_manifest
from tfbench.study import run_study
from tfbench.study.fidelity import prepare
from tfbench.study.run_one import make_jobs
from tfbench.warehouse import Warehouse

TOKENS = 8
REQUESTS = 3
STEPS = StepTime(base_ms=2.0, prefill_token_ms=0.2, decode_seq_ms=0.0)
_MS = 1_000_000
_runs = itertools.count()


@dataclass(frozen=True)
class Told:
    """One attempt as the ledger has it, and the server's record of it."""

    row: dict[str, Any]
    kinds: list[str]
    t_ns: list[int]
    truth: dict[str, Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with start_engine(EngineConfig(model="truth", step_time=STEPS, spin_us=0)) as running:
        yield running


def truth_of(engine: RunningEngine) -> dict[str, dict[str, Any]]:
    requests = httpx.get(f"{engine.root_url}/tfbench/requests", timeout=30, trust_env=False).json()["requests"]
    return {one["request_id"]: one for one in requests}


def play(
    engine: RunningEngine, header: str, folder: Path, *, first_byte_s: float = 20, idle_s: float = 20
) -> list[Told]:
    """A few requests that all bear `header`, through the load side."""
    load = {"rates": [100], "count": REQUESTS, "warmup_s": 0, "process": "constant"}
    context, plan = prepare(engine.url, load, folder, output_tokens=TOKENS)
    limits = Limits(5_000 * _MS, round(first_byte_s * 1e9), round(idle_s * 1e9), 60_000 * _MS)
    context = replace(context, headers=((MISBEHAVE_HEADER, header),))
    run_id = f"run-{next(_runs)}"  # request ids follow from it, and the engine is the same for all
    jobs = [replace(job, limits=limits, drain_ns=30_000 * _MS) for job in make_jobs(context, plan, run_id)]
    base = ClockBase.start()
    tables = assemble(run_id, jobs, run_load(jobs), base, "host").tables
    streams = {row["attempt_id"]: row for row in tables["streams"].to_pylist()}
    truth = truth_of(engine)
    told = []
    for row in tables["attempts"].to_pylist():
        stream = streams.get(row["attempt_id"], {"kind": [], "t_ns": []})
        told.append(Told(row, stream["kind"], stream["t_ns"], truth[row["request_id"]]))
    assert len(told) == REQUESTS
    assert {one.truth["misbehaviour"] for one in told} == {str(parse_act(header))}
    return told


def outcomes(told: list[Told]) -> set[str]:
    return {one.row["outcome"] for one in told}


def test_a_role_long_before_the_first_token_is_no_first_token(engine: RunningEngine, tmp_path: Path) -> None:
    told = play(engine, "role_only", tmp_path)
    assert outcomes(told) == {"ok"}
    for one in told:
        assert one.kinds[:2] == ["role", "text"] and one.t_ns[0] < one.t_ns[1]
        chunks = one.truth["chunks"]
        assert chunks["kind"][:2] == ["role", "text"]
        # The engine had its first token a prefill later; the client's first text is not before that.
        assert chunks["sent_ns"][0] < chunks["due_ns"][1] <= chunks["sent_ns"][1]


@pytest.mark.parametrize(("k", "chunks"), [(3, 3), (100, 1)])
def test_several_tokens_a_chunk(engine: RunningEngine, tmp_path: Path, k: int, chunks: int) -> None:
    told = play(engine, f"tokens_per_chunk; k={k}", tmp_path)
    assert outcomes(told) == {"ok"}
    assert all(one.kinds.count("text") == chunks and one.row["output_tokens"] == TOKENS for one in told)
    assert all(one.truth["output_tokens"] == TOKENS for one in told)


def test_no_usage_leaves_counts_unknown(engine: RunningEngine, tmp_path: Path) -> None:
    told = play(engine, "no_usage", tmp_path)
    assert outcomes(told) == {"ok"}
    assert all("usage" not in one.kinds and one.row["prompt_tokens"] is None for one in told)
    assert all(one.row["token_source"] != "usage" for one in told)


@pytest.mark.parametrize(
    ("kind", "after", "chunks"),
    [(Kind.ABORT, 0, 0), (Kind.ABORT, 2, 2), (Kind.ABORT, 1000, TOKENS - 1), (Kind.RESET, 2, 2)],
)
def test_a_stream_that_is_cut_is_a_stream_error(
    engine: RunningEngine, tmp_path: Path, kind: Kind, after: int, chunks: int
) -> None:
    told = play(engine, f"{kind}; after={after}", tmp_path)
    assert outcomes(told) == {"stream_error"}
    for one in told:
        assert one.row["http_status"] == 200 and one.row["finish_reason"] is None
        # A RST may overtake what was sent before it.
        seen = one.kinds.count("text")
        assert seen == chunks if kind is Kind.ABORT else seen <= chunks
        assert one.truth["chunks"]["kind"].count("text") == chunks
        assert one.truth["finish_reason"] == "abort"


def test_a_stall_is_only_late_while_the_client_waits(engine: RunningEngine, tmp_path: Path) -> None:
    told = play(engine, "stall; after=2, s=0.2", tmp_path)
    assert outcomes(told) == {"ok"}
    for one in told:
        assert one.row["output_tokens"] == TOKENS
        sent = one.truth["chunks"]["sent_ns"]
        assert one.truth["chunks"]["kind"].count("text") == 3  # what came meanwhile goes out as one
        assert sent[3] - sent[2] >= 200 * _MS
    assert outcomes(play(engine, "stall; after=2, s=30", tmp_path, idle_s=0.3)) == {"timeout"}


def test_an_error_in_a_stream_is_a_stream_error(engine: RunningEngine, tmp_path: Path) -> None:
    told = play(engine, "stream_error; after=2", tmp_path)
    assert outcomes(told) == {"stream_error"}
    for one in told:
        assert one.kinds == ["role", "text", "text", "error"] == one.truth["chunks"]["kind"]
        assert "misbehaves" in one.row["error"] and one.truth["finish_reason"] == "error"


def test_a_stream_left_open_after_its_end_mark_is_ok(engine: RunningEngine, tmp_path: Path) -> None:
    told = play(engine, "open_end; s=30", tmp_path, idle_s=0.3)
    assert outcomes(told) == {"ok"}
    assert all(one.row["end_ns"] == one.t_ns[-1] and one.row["output_tokens"] == TOKENS for one in told)


@pytest.mark.parametrize(("media_type", "outcome"), [("text/html", "stream_error"), ("text/plain", "ok")])
def test_a_wrong_content_type_counts_by_whether_the_body_can_be_read(
    engine: RunningEngine, tmp_path: Path, media_type: str, outcome: str
) -> None:
    assert outcomes(play(engine, f"content_type; type={media_type}", tmp_path)) == {outcome}


def test_slow_headers_are_waited_for_as_long_as_the_manifest_says(engine: RunningEngine, tmp_path: Path) -> None:
    told = play(engine, "slow_headers; s=0.2", tmp_path)
    assert outcomes(told) == {"ok"}
    assert all(one.row["first_byte_ns"] - one.row["sent_ns"] >= 200 * _MS for one in told)
    assert outcomes(play(engine, "slow_headers; s=30", tmp_path, first_byte_s=0.3)) == {"timeout"}


@pytest.mark.parametrize(
    ("header", "outcome", "status"),
    [
        ("json_error", "stream_error", 200),
        ("rate_limit; retry_after=7", "rejected", 429),
        ("http_error", "http_error", 500),
        ("http_error; status=503", "rejected", 503),
        ("http_error; status=404", "http_error", 404),
        ("reset", "disconnected", None),
    ],
)
def test_what_is_refused(engine: RunningEngine, tmp_path: Path, header: str, outcome: str, status: int | None) -> None:
    told = play(engine, header, tmp_path)
    assert outcomes(told) == {outcome}
    for one in told:
        assert one.row["http_status"] == one.truth["status"] == status
        assert one.truth["events"] == [] and one.truth["output_tokens"] == 0


MANIFEST = """
name = "misbehaviour"
model = {{ name = "tfbench-engine" }}
endpoint = {{ adapter = "tfbench", timeouts = {{ first_byte_s = {first_byte_s}, idle_s = {idle_s} }} }}
workload = {{ input_tokens = 8, output_tokens = 8 }}
load = {{ rates = [100], duration_s = 2, warmup_s = 0, drain_s = 20, repeats = 1, seed = 5 {more} }}
"""
SHARES = {
    "role_only": ("ok", 0.05),
    "tokens_per_chunk; k=4": ("ok", 0.05),
    "no_usage": ("ok", 0.05),
    "abort; after=2": ("stream_error", 0.05),
    "stall; after=2, s=60": ("timeout", 0.05),
    "stream_error; after=1": ("stream_error", 0.05),
    "open_end; s=60": ("ok", 0.05),
    "content_type; type=text/html": ("stream_error", 0.05),
    "slow_headers; s=60": ("timeout", 0.05),
    "json_error": ("stream_error", 0.05),
    "rate_limit; burst=4": ("rejected", 0.1),
    "http_error; status=502": ("http_error", 0.05),
    "reset": ("disconnected", 0.05),
    "reset; after=1": ("stream_error", 0.05),
}


def study(engine: RunningEngine, folder: Path, **values: Any) -> list[dict[str, Any]]:
    """The attempts of a study of `engine` that were sent, each with the server's word on how it misbehaved."""
    path = folder / "manifest.toml"
    path.write_text(MANIFEST.format(**({"first_byte_s": 20, "idle_s": 20, "more": ""} | values)))
    done = run_study(load_manifest(path, url=engine.url), folder / "w.duckdb", reruns=0)
    truth = truth_of(engine)
    with Warehouse.open(done.warehouse, read_only=True) as store:
        found = store.con.execute(
            "SELECT request_id, task_id, \"try\", phase, outcome FROM attempts WHERE role = 'load'"
            ' AND sent_ns IS NOT NULL ORDER BY task_id, "try"'
        ).fetchall()
    names = ("request_id", "task", "try", "phase", "outcome")
    rows = [dict(zip(names, row, strict=True)) for row in found]
    return [row | {"act": truth[row["request_id"]]["misbehaviour"]} for row in rows]


def test_shares_of_every_kind_at_once_each_lead_to_their_outcome(tmp_path: Path) -> None:
    acts = {str(parse_act(act)): outcome for act, (outcome, _) in SHARES.items()}
    config = EngineConfig(
        step_time=STEPS,
        max_num_seqs=256,
        misbehave=Misbehaviour({act: share for act, (_, share) in SHARES.items()}, seed=3),
    )
    with start_engine(config) as engine:
        rows = study(engine, tmp_path, first_byte_s=0.5, idle_s=0.5)
        page = httpx.get(f"{engine.root_url}/metrics", timeout=30, trust_env=False).text
        misbehaved = Counter(one["misbehaviour"] for one in truth_of(engine).values())
    measured = [row for row in rows if row["phase"] == "measure"]
    wrong = [row for row in measured if row["outcome"] != (acts[row["act"]] if row["act"] else "ok")]
    assert len(measured) > 150 and wrong == []
    assert {row["act"] for row in measured} == {None, *acts}, "every kind came up"
    for kind in Kind:
        count = sum(n for act, n in misbehaved.items() if act and parse_act(act).kind is kind)
        labels = f'kind="{kind}",engine="0",model_name="tfbench-engine"'
        assert f"tfbench:misbehaviours_total{{{labels}}} {count}.0" in page


@pytest.mark.parametrize(
    ("asked_by", "act", "outcome"),
    [
        ("header", "abort; after=3", "stream_error"),
        ("header", "reset", "disconnected"),
        ("header", "rate_limit", "rejected"),
        ("header", "http_error; status=500", "http_error"),
        ("header", "stream_error", "stream_error"),
        ("header", "stall; after=1, s=5", "timeout"),
        ("header", "content_type; type=text/html", "stream_error"),
        ("share", "reset", "disconnected"),
        ("share", "stream_error", "stream_error"),
    ],
)
def test_the_probe_is_spared_so_that_all_of_the_load_can_go_wrong(
    tmp_path: Path, asked_by: str, act: str, outcome: str
) -> None:
    shares = {act: 1.0} if asked_by == "share" else {}
    headers = "{}" if asked_by == "share" else f'{{ "{MISBEHAVE_HEADER}" = "{act}" }}'
    with start_engine(EngineConfig(step_time=STEPS, misbehave=Misbehaviour(shares))) as engine:
        path = tmp_path / "manifest.toml"
        text = MANIFEST.format(first_byte_s=0.5, idle_s=0.5, more="").replace("duration_s = 2", "duration_s = 0.3")
        path.write_text(text.replace('adapter = "tfbench",', f'adapter = "tfbench", headers = {headers},'))
        with suppress(EndpointError):  # nothing is answered well, which is told once all is kept
            run_study(load_manifest(path, url=engine.url), tmp_path / "w.duckdb", reruns=0)
        acts = {one["misbehaviour"] for one in truth_of(engine).values()}
    with Warehouse.open(tmp_path / "w.duckdb", read_only=True) as store:
        load = store.con.execute(
            "SELECT DISTINCT outcome FROM attempts WHERE role = 'load' AND phase = 'measure'"
        ).fetchall()
    assert str(parse_act(act)) in acts
    assert [one for (one,) in load] == [outcome]


def test_retries_come_through_bursts_of_429(tmp_path: Path) -> None:
    shares = {"rate_limit; retry_after=0, burst=5": 0.4}
    more = ', retry = { outcomes = ["rejected"], max = 20, backoff_s = 0.01, factor = 1 }'
    with start_engine(EngineConfig(step_time=STEPS, misbehave=Misbehaviour(shares, seed=1))) as engine:
        rows = study(engine, tmp_path, more=more)
    scheduled = {row["task"] for row in rows if row["try"] == 0 and row["phase"] == "measure"}
    rows = [row for row in rows if row["task"] in scheduled]
    assert {row["outcome"] for row in rows if row["act"] is None} == {"ok"}
    assert {row["outcome"] for row in rows if row["act"] is not None} == {"rejected"}
    last = {row["task"]: row["outcome"] for row in rows}
    assert set(last.values()) == {"ok"}, "each task came through in the end"
    assert max(row["try"] for row in rows) > 1


def test_a_header_that_says_nonsense_is_refused_by_name(engine: RunningEngine) -> None:
    body = {"prompt": "a b c", "max_tokens": 2}
    with httpx.Client(base_url=engine.url, trust_env=False) as client:
        for header, said in [
            ("explode", "'explode': no such kind"),
            ("stall; aftr=3", "'aftr=3'"),
            ("rate_limit; retry_after=soon", "retry_after must be"),
            ("abort; after=1", "abort needs a streamed reply"),
        ]:
            answer = client.post("completions", json=body, headers={MISBEHAVE_HEADER: header})
            assert answer.status_code == 400
            message = answer.json()["error"]["message"]
            assert MISBEHAVE_HEADER in message and said in message, message
        answer = client.post("completions", json=body | {"stream": True}, headers={MISBEHAVE_HEADER: "role_only"})
        assert "needs a streamed chat reply" in answer.json()["error"]["message"]
        assert client.post("completions", json=body).status_code == 200
