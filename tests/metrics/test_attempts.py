"""The per-attempt view where facts are missing, in unit "task", and under each kind of SLO term."""

import itertools
import math
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ledger.builder import MANIFEST, Row, answer, ns, row
from tests.metrics.conftest import AddRun
from tfbench.core.errors import UsageError
from tfbench.core.kinds import VISIBLE_KINDS, ChunkKind
from tfbench.metrics import attempt_figures, counts, figures, outcomes


def _by_attempt(con: duckdb.DuckDBPyConnection, study_id: str = "study-1", **options: Any) -> dict[int, dict[str, Any]]:
    frame = attempt_figures(con, study_id, **options)
    rows = [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in one.items()}
        for one in frame.to_dict("records")
    ]
    return {int(one["attempt_id"]): one for one in rows}


def _manifest(**sections: Any) -> dict[str, Any]:
    return MANIFEST | sections


def test_unknown_facts_stay_unknown(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    bare = {"dispatched_ns": None, "sent_ns": None, "new_connection": None, "stamp_source": None}
    add_run(
        [
            row(1, 0, [(50, "text", None), (60, "text", None)], **bare),
            row(2, 100, stream=False, output_tokens=5, **bare),
            row(3, 200, stream=False, end_ns=None, **bare),
            row(4, 300, stream=False, outcome="timeout", end_ns=None, **bare),
        ],
        origin="imported:other",
        measure_start_ns=None,
        measure_end_ns=None,
        load_value=None,
        observed=None,
        signals=None,
    )
    found = _by_attempt(con)
    assert found[1]["ttft_ms"] == 50
    assert found[1]["ttft_service_ms"] is None
    assert found[1]["ttft_service_or_inf_ms"] is None  # it came, but nobody says how long after the send
    assert found[1]["client_lag_ms"] is None
    assert found[1]["tpot_ms"] is None
    # An ok attempt whose chunks nobody recorded isn't one that showed nothing.
    assert found[2]["ttft_or_inf_ms"] is None
    assert not found[2]["stream_known"]
    assert not found[2]["good"]
    assert found[3]["e2e_or_inf_ms"] is None
    assert found[4]["ttft_or_inf_ms"] == found[4]["e2e_or_inf_ms"] == math.inf
    # The window comes from the facts: first schedule to last known end, that one inside.
    assert [found[i]["in_window"] for i in (1, 2, 3, 4)] == [True, True, False, False]


def test_nulls_inside_lists(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    one = answer(1, 0)
    assert one.stream is not None
    stream = one.stream | {"kind": ["text", None, "text"], "user_ns": None, "blur_ns": None, "tokens": None}
    add_run([Row(one.attempt, stream), Row(answer(2, 100).attempt, {"attempt_id": 2, "t_ns": None, "kind": None})])
    found = _by_attempt(con, gaps=True)
    assert list(found[1]["gaps_ms"]) == [20.0]
    assert not found[1]["one_token_per_chunk"]
    assert not found[2]["stream_known"]


def test_new_connection_starts_lag_at_its_connection(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    def sent_late(n: int, **columns: Any) -> Row:
        return row(n, 0, [(50, "text", 1)], sent=9, **{"dispatched_ns": ns(1)} | columns)

    add_run(
        [
            sent_late(1),
            sent_late(2, new_connection=True, connected_ns=ns(8.5)),
            sent_late(3, new_connection=True),  # connected when? then nobody knows
            sent_late(4, slot_ns=ns(0.75)),
        ]
    )
    lags = {n: one["client_lag_ms"] for n, one in _by_attempt(con).items()}
    assert lags == {1: 1 + 8, 2: 1 + 0.5, 3: None, 4: 0.25 + 8}


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        ({}, True),
        ({"ttft_ms": 50}, True),
        ({"ttft_ms": {"max": 49.999}}, False),
        ({"tpot_ms": 20}, True),
        ({"tpot_ms": {"max": 19}}, False),
        ({"e2e_ms": 90}, True),
        ({"e2e_ms": {"max": 89}}, False),
        ({"icl_ms": 30}, True),
        ({"icl_ms": {"max": 29}}, False),
        ({"icl_ms": {"p50": 10}}, True),
        ({"icl_ms": {"p50": 9}}, False),
        ({"icl_ms": {"p99.9": 29}}, False),
        ({"icl_ms": {"max": 30, "p50": 9}}, False),
        ({"ttft_ms": None, "tpot_ms": None, "icl_ms": None, "e2e_ms": None}, True),
    ],
)
def test_slo_terms(con: duckdb.DuckDBPyConnection, add_run: AddRun, slo: dict[str, Any], good: bool) -> None:
    # TTFT 50, gaps 10 and 30, TPOT 40 / 2, E2E 90.
    chunks = [(50, "text", 1), (60, "text", 1), (90, "text", 1)]
    add_run([row(1, 0, chunks, output_tokens=3)], manifest=_manifest(slo=slo))
    found = _by_attempt(con)[1]
    assert found["good"] is good
    limited = any(limit is not None for limit in slo.values())
    assert (found["strain"] <= 1) is good or not limited
    assert found["strain"] > 0
    assert not found["vacuous"]


@pytest.mark.parametrize(
    ("attempt", "good", "vacuous"),
    [
        (answer(1, 0, n=1), True, True),
        (row(1, 0, [(50, "text", 9)], output_tokens=9), True, True),  # one chunk
        (row(1, 0, [(50, "text", None)]), True, True),  # one chunk, whatever it holds
        (row(1, 0, [(50, "text", 1), (60, "empty", 0)], output_tokens=1), True, True),  # one token
        (row(1, 0, [(50, "text", None), (60, "text", None)]), False, False),  # unknown tokens
        (row(1, 0, [], output_tokens=0), False, True),  # no TTFT
        (answer(1, 0, n=1, outcome="timeout"), False, False),
        (answer(1, 0, n=1, phase="warmup"), True, False),  # vacuous ones are counted among the counted
    ],
)
def test_one_token_or_chunk_meets_its_terms_vacuously(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, attempt: Row, good: bool, vacuous: bool
) -> None:
    add_run([attempt], manifest=_manifest(slo={"ttft_ms": 100, "tpot_ms": 20}))
    found = _by_attempt(con)[1]
    assert (found["good"], found["vacuous"]) == (good, vacuous)
    [count] = counts(con, "study-1").to_dict("records")
    assert count["vacuous"] == vacuous


def test_an_unrecorded_stream_does_not_meet_icl(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([row(1, 0, stream=False, output_tokens=5)], manifest=_manifest(slo={"icl_ms": {"p90": 50}}))
    assert not _by_attempt(con)[1]["good"]
    [count] = counts(con, "study-1").to_dict("records")
    assert (count["ok"], count["term_unknown"], count["vacuous"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("judge", "quality", "good"),
    [
        ("none", None, True),
        ("none", '{"passed": false}', False),
        ("exact", None, False),
        ("exact", '{"passed": true}', True),
        ("exact", '{"score": 1}', False),
    ],
)
def test_quality(con: duckdb.DuckDBPyConnection, add_run: AddRun, judge: str, quality: str | None, good: bool) -> None:
    add_run([answer(1, 0, quality=quality)], manifest=_manifest(quality={"judge": judge}))
    found = _by_attempt(con)[1]
    assert found["good"] is good
    assert (found["strain"] == math.inf) is not good


RETRIED = [
    answer(1, 0, task_id="a", outcome="rejected", phase="warmup"),
    answer(2, 100, ttft=40, task_id="a", **{"try": 1}),
    answer(3, 200, task_id="b", outcome="timeout"),
    answer(4, 300, task_id="b", outcome="cancelled", **{"try": 1}),
    answer(5, 400, task_id="c", turn=0),
    answer(6, 500, task_id="c", turn=1),
]


def test_unit_attempt_counts_every_try(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(RETRIED)
    found = _by_attempt(con)
    assert [n for n, one in found.items() if one["counted"]] == [2, 3, 5, 6]
    assert found[2]["ttft_ms"] == 40


def test_unit_task_counts_the_last_try_on_the_clock_of_the_first(
    con: duckdb.DuckDBPyConnection, add_run: AddRun
) -> None:
    add_run(RETRIED, manifest=_manifest(accounting=MANIFEST["accounting"] | {"unit": "task"}))
    found = _by_attempt(con)
    assert [n for n, one in found.items() if one["superseded"]] == [1, 3]
    assert [n for n, one in found.items() if one["counted"]] == [5, 6]  # a began in warmup, b ended as excluded
    assert found[2]["phase"] == "warmup"
    assert found[2]["ttft_ms"] == 140
    assert found[2]["e2e_ms"] == 160
    assert found[2]["ttft_service_ms"] == pytest.approx(39.9)


def test_no_accounting_in_the_manifest_counts_every_failure(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([row(1, 0, outcome="disconnected"), row(2, 1, outcome="cancelled")], manifest={"name": "imported"})
    assert [one["counted"] for one in _by_attempt(con).values()] == [True, False]


def test_other_roles_are_in_nothing(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([answer(1, 0), answer(2, 1, role="probe"), answer(3, 2, role="prime")])
    assert list(_by_attempt(con)) == [1]
    assert outcomes(con, "study-1")["n"].sum() == 1


def test_gaps_are_given_when_asked_for(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([answer(1, 0, gap=7)])
    assert "gaps_ms" not in attempt_figures(con, "study-1").columns
    assert list(_by_attempt(con, gaps=True)[1]["gaps_ms"]) == [7.0, 7.0]


def test_counts_of_a_run_without_attempts(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([])
    [count] = counts(con, "study-1").to_dict("records")
    assert {
        key: count[key] for key in ("counted", "ok", "good", "bad", "excluded", "ended_in_window")
    } == dict.fromkeys(("counted", "ok", "good", "bad", "excluded", "ended_in_window"), 0)


@pytest.mark.parametrize("read", [attempt_figures, counts, outcomes])
def test_no_such_study(con: duckdb.DuckDBPyConnection, add_run: AddRun, read: Any) -> None:
    add_run([])
    with pytest.raises(UsageError, match="no study 'nope'"):
        read(con, "nope")


def test_the_callers_connection_is_left_as_it_was(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([answer(1, 0)])
    before = con.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
    attempt_figures(con, "study-1")
    assert con.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall() == before
    assert len(con.sql("FROM attempts").fetchall()) == 1  # no result is left open


_KINDS = st.sampled_from([kind.value for kind in ChunkKind])
_CHUNKS = st.lists(st.tuples(st.integers(0, 10**9), _KINDS, st.none() | st.integers(0, 3)), max_size=6).map(
    lambda chunks: sorted(chunks, key=lambda chunk: chunk[0])
)
_OUTCOMES = st.sampled_from(["ok", "ok", "ok", "timeout", "rejected", "cancelled"])
_ATTEMPTS = st.lists(st.tuples(_CHUNKS, _OUTCOMES, st.none() | st.integers(0, 9)), max_size=8)


def _paper(chunks: list[tuple[int, str, int | None]], outcome: str, tokens: int | None) -> dict[str, Any]:
    """The definitions once more, in plain Python over nanoseconds since the schedule."""
    visible = [t for t, kind, _ in chunks if kind in VISIBLE_KINDS]
    output = [(t, carried) for t, kind, carried in chunks if kind in VISIBLE_KINDS or (kind == "empty" and carried)]
    if not output:
        output = [(t, carried) for t, kind, carried in chunks if kind == "empty" and carried is None]
    ends = [t for t, kind, _ in chunks if kind == "finish"][:1] or [t for t, kind, _ in chunks if kind == "usage"][-1:]
    silent = outcome == "ok" and tokens != 0 and not visible
    came = visible or ([t for t, _ in output] or ends * bool(tokens)) * silent
    gaps = [(b[0] - a[0]) / 1e6 for a, b in itertools.pairwise(output)]
    span = (output[-1][0] - output[0][0]) / 1e6 if len(output) > 1 else None
    first = output[0][1] if output else None
    after = tokens - first if tokens is not None and first is not None else 0
    return {
        "ttft_ms": came[0] / 1e6 if came else None,
        "tpot_ms": span / (tokens - 1) if span is not None and tokens is not None and tokens > 1 else None,
        "tpot_after_first_ms": span / after if span is not None and after > 0 else None,
        "icl_max_ms": max(gaps, default=None),
        "n_output_chunks": len(output),
        "one_token_per_chunk": bool(output) and all(carried == 1 for _, carried in output),
        "shows_nothing": bool(came) and not visible,
    }


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(attempts=_ATTEMPTS)
def test_any_stream_against_plain_python(
    attempts: list[tuple[list[tuple[int, str, int | None]], str, int | None]],
    con: duckdb.DuckDBPyConnection,
    add_run: AddRun,
) -> None:
    rows = [
        row(i, i, [(t / 1e6, kind, carried) for t, kind, carried in chunks], outcome=outcome, output_tokens=tokens)
        for i, (chunks, outcome, tokens) in enumerate(attempts)
    ]
    name = f"any-{len(con.execute('FROM runs').fetchall())}"  # examples share the warehouse
    add_run(rows, run_id=name, study_id=name)
    found = _by_attempt(con, name)
    for i, (chunks, outcome, tokens) in enumerate(attempts):
        wanted = _paper(chunks, outcome, tokens)
        assert {column: found[i][column] for column in wanted} == pytest.approx(wanted)
        assert found[i]["counted"] is (outcome != "cancelled")
        assert found[i]["good"] is (outcome == "ok" and wanted["ttft_ms"] is not None and wanted["ttft_ms"] <= 100)
        assert found[i]["ttft_or_inf_ms"] is not None
    [count] = counts(con, name).to_dict("records")
    assert count["counted"] == count["ok"] + count["bad"] == len(attempts) - count["excluded"]
    assert count["good"] <= count["ok"]
    assert outcomes(con, name)["n"].sum() == len(attempts)


@pytest.mark.parametrize(
    ("chunks", "tokens", "ttft", "tpot", "icl", "n", "shows_nothing"),
    [
        # An event that shows nothing, before, between and after what does: no output.
        ([(5, "empty", None), (50, "text", 1), (60, "text", 1)], 2, 50, 10, 10, 2, False),
        ([(50, "text", 1), (55, "empty", None), (60, "text", 1)], 2, 50, 10, 10, 2, False),
        ([(50, "text", 1), (60, "text", 1), (460, "empty", None)], 2, 50, 10, 10, 2, False),
        ([(50, "text", None), (60, "text", None), (460, "empty", 0)], 2, 50, 10, 10, 2, False),
        # One that carried a token is output, but not what TTFT waits for.
        ([(40, "empty", 1), (50, "text", 1), (60, "text", 1)], 3, 50, 10, 10, 3, False),
        ([(50, "text", 1), (60, "text", 1), (70, "empty", 1)], 3, 50, 10, 10, 3, False),
        # Nothing shows: from the first output chunk.
        ([(5, "role", None), (50, "empty", None), (60, "empty", None), (61, "finish", None)], 2, 50, 10, 10, 2, True),
        ([(5, "empty", None), (50, "empty", 1), (60, "empty", 1)], 2, 50, 10, 10, 2, True),
        ([(5, "empty", 0), (50, "empty", None), (60, "empty", None)], 2, 50, 10, 10, 2, True),
        ([(50, "empty", None)], None, 50, None, None, 1, True),
        # Not even that: with its finish.
        ([(5, "role", None), (50, "finish", None), (60, "usage", None)], 1, 50, None, None, 0, True),
        ([(5, "usage", None), (50, "usage", None)], 3, 50, None, None, 0, True),
        # No token came, or nobody says that one did.
        ([(5, "empty", None), (50, "finish", None)], 0, None, None, None, 1, False),
        ([(5, "role", None), (50, "finish", None)], None, None, None, None, 0, False),
    ],
)
def test_chunks_that_show_nothing(
    con: duckdb.DuckDBPyConnection,
    add_run: AddRun,
    chunks: list[tuple[float, str, int | None]],
    tokens: int | None,
    ttft: float | None,
    tpot: float | None,
    icl: float | None,
    n: int,
    shows_nothing: bool,
) -> None:
    add_run([row(1, 0, chunks, output_tokens=tokens)])
    one = _by_attempt(con)[1]
    found = tuple(one[name] for name in ("ttft_ms", "tpot_ms", "icl_max_ms", "n_output_chunks", "shows_nothing"))
    assert found == (ttft, tpot, icl, n, shows_nothing)
    [count] = counts(con, "study-1").to_dict("records")
    assert (count["shows_nothing"], count["no_finish_reason"]) == (shows_nothing, 1)


def test_only_an_ok_answer_begins_with_what_shows_nothing(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run([row(1, 0, [(50, "empty", 1)], output_tokens=1, outcome="timeout", finish_reason="stop")])
    one = _by_attempt(con)[1]
    assert (one["ttft_ms"], one["ttft_or_inf_ms"], one["shows_nothing"]) == (None, math.inf, False)


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (["ok"] * 20, "100 % of the attempts showed no output"),
        (["timeout"] * 20, "100 % of the attempts failed"),
        (["ok"] * 10 + ["timeout"] * 10, "100 % of the attempts failed or showed no output"),
    ],
)
def test_an_answer_without_output_has_not_failed(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, ends: list[str], says: str
) -> None:
    add_run([row(i, i, [(50, "finish", None)], output_tokens=0, outcome=what) for i, what in enumerate(ends)])
    [reason] = [one["reason"] for one in figures(con, "study-1").to_dict("records") if one["figure"] == "ttft_p50_ms"]
    assert says in reason and (says + " ") not in reason
