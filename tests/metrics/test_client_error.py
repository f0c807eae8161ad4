"""How far a slow client moved figures: the truth lies within, and what is spoiled isn't printed."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.ledger.builder import Row, answer, ns
from tests.metrics.conftest import AddRun
from tfbench.metrics import FIGURES, figures
from tfbench.metrics.client_error import client_moves
from tfbench.metrics.soundness import Moved, is_sound, only_timing, over_limits
from tfbench.stats.quantile import sample_quantile

OVER = {"value": 9.0, "limit": 1.0, "ok": False}
FINE = {"value": 0.1, "limit": 1.0, "ok": True}
LATE = {"client_lag_p99_ms": OVER, "sent_share": {"value": 1.0, "limit": 0.99, "ok": True}}
BLURRED = {"client_lag_p99_ms": FINE, "blurred_chunk_share": {"value": 0.4, "limit": 0.01, "ok": False}}
N = 200
LIMIT_MS = 100  # of the builder's manifest


def sent_late(lags_ms: Sequence[float], *, ttft: float = 50.0, gap: float = 10.0, spread: float = 0.0) -> list[Row]:
    """Answers that take `ttft` and up to `spread` more from a send which came `lags_ms` too late."""
    rows = []
    for i, lag in enumerate(lags_ms):
        at = i * 4.0
        rows.append(
            answer(
                i, at, ttft=ttft + spread * (i * 37 % 101) / 101 + lag, gap=gap, sent=lag, dispatched_ns=ns(at + lag)
            )
        )
    return rows


def by_name(con: duckdb.DuckDBPyConnection, **more: Any) -> Mapping[str, Any]:
    return {row["figure"]: row for row in figures(con, "study-1", **more).to_dict("records")}


def test_lag_moves_what_is_counted_from_the_schedule_and_nothing_else(
    con: duckdb.DuckDBPyConnection, add_run: AddRun
) -> None:
    # A tenth of the sends is 8 ms late: P50 has none of it, P95 all of it.
    lags = np.where(np.arange(N) % 10 == 0, 8.0, 0.0)
    add_run(sent_late(lags.tolist()), signals=LATE)
    moves = client_moves(con, ["run-1"])
    moved = {name for _, name in moves}
    for name in ("ttft_p95_ms", "ttft_p99_ms", "e2e_p95_ms"):
        assert moves["run-1", name].down == pytest.approx(8.0) and moves["run-1", name].up == 0.0
    assert not moved & {"ttft_p50_ms", "ttft_service_p95_ms", "tpot_p95_ms", "icl_p95_ms", "throughput_requests_per_s"}
    found = by_name(con, moves=moves)
    assert found["ttft_p50_ms"]["value"] == 50.0 and found["tpot_p95_ms"]["value"] is not None
    assert found["ttft_p95_ms"]["value"] is None and found["ttft_p95_ms"]["lo"] is None
    assert (
        found["ttft_p95_ms"]["reason"]
        == "withheld: in this run this machine's client was slow and moved it by up to 14%"
    )


@pytest.mark.parametrize("signals", [{}, {"client_lag_p99_ms": FINE, "blurred_chunk_share": FINE | {"value": 0.0}}])
def test_a_quiet_client_is_not_looked_at(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, signals: Mapping[str, Any]
) -> None:
    add_run(sent_late([0.05] * N), signals=signals)
    assert client_moves(con, ["run-1"]) == {}


@pytest.mark.parametrize("seed", range(4))
def test_the_truth_lies_within_what_blur_and_lag_allow(
    con: duckdb.DuckDBPyConnection, add_run: AddRun, seed: int
) -> None:
    """Chunks came anywhere between a stamp and its blur before; quantiles of when they came are held."""
    rng = np.random.default_rng(seed)
    rows, true = [], {"ttft": [], "tpot": [], "icl": [], "e2e": []}  # type: ignore[var-annotated]
    for i in range(N):
        at, lag, tokens = i * 4.0, float(rng.exponential(1.0)), 6
        came = at + lag + 40.0 + np.cumsum(rng.exponential(9.0, tokens))
        blur = np.where(rng.random(tokens) < 0.4, rng.uniform(0.0, 6.0, tokens), 0.0)
        # A read that comes late stamps what came before with its own time.
        seen = np.maximum.accumulate(came + rng.uniform(0.0, 1.0, tokens) * blur)
        late = seen - came
        one = answer(i, at, n=tokens, sent=lag, dispatched_ns=ns(at + lag))
        stream = dict(one.stream or {})
        stream |= {"t_ns": [ns(t) for t in seen], "blur_ns": [round(1e6 * b) for b in np.maximum(blur, late)]}
        rows.append(Row(one.attempt | {"end_ns": ns(float(came[-1]))}, stream))
        true["ttft"].append(came[0] - at - lag)
        true["tpot"].append((came[-1] - came[0]) / (tokens - 1))
        true["icl"] += np.diff(came).tolist()
        true["e2e"].append(came[-1] - at - lag)
    add_run(rows, signals=LATE | BLURRED)
    moves, seen = client_moves(con, ["run-1"]), by_name(con)
    for name, values in true.items():
        for p in (50, 95, 99):
            figure = f"{name}_p{p}_ms"
            moved = moves.get(("run-1", figure), Moved(seen[figure]["value"]))
            assert moved.value is not None
            truth = sample_quantile(np.array(values), p / 100)
            assert moved.value - moved.down - 1e-3 <= truth <= moved.value + moved.up + 1e-3, (name, p)
    good = moves.get(("run-1", "good_fraction"), Moved(seen["good_fraction"]["value"]))
    met = np.mean(np.array(true["ttft"]) <= LIMIT_MS)
    assert good.value is not None and good.value - good.down - 1e-9 <= met <= good.value + good.up + 1e-9


def test_a_figure_is_of_the_runs_that_the_client_left_alone(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    rng = np.random.default_rng(1)
    for repeat in range(4):
        lags = np.full(N, 30.0 if repeat == 1 else 0.01)
        rows = sent_late(lags.tolist(), spread=4.0 + repeat, gap=float(10 + rng.random()))
        add_run(rows, run_id=f"run-{repeat}", repeat=repeat, signals=LATE if repeat == 1 else {})
    moves = client_moves(con, [f"run-{i}" for i in range(4)])
    whole, sound = by_name(con), by_name(con, moves=moves)
    assert (whole["ttft_p50_ms"]["k"], sound["ttft_p50_ms"]["k"]) == (4, 3)
    assert sound["ttft_p50_ms"]["hi"] < 60 < whole["ttft_p99_ms"]["value"]
    assert sound["ttft_p50_ms"]["reason"].endswith(
        "in 1 of 4 runs this machine's client was slow and moved it by up to 36%: left out of it"
    )
    assert sound["tpot_p50_ms"] == whole["tpot_p50_ms"] and sound["tpot_p50_ms"]["k"] == 4


def test_what_is_sound_has_room_for_what_it_was_moved_by(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    for repeat in range(4):
        add_run(sent_late([0.4] * N, spread=4.0 + repeat), run_id=f"run-{repeat}", repeat=repeat, signals=LATE)
    moves = client_moves(con, [f"run-{i}" for i in range(4)])
    whole, sound = by_name(con)["ttft_p50_ms"], by_name(con, moves=moves)["ttft_p50_ms"]
    assert sound["value"] == whole["value"] and sound["hi"] == whole["hi"]
    assert sound["lo"] == pytest.approx(whole["lo"] - 0.4)


def test_a_closed_loops_rates_are_slowed_by_the_client(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    add_run(sent_late([7.0] * N), signals=LATE, mode="closed")
    rate = client_moves(con, ["run-1"])["run-1", "throughput_requests_per_s"]
    assert rate.value is not None and rate.up / rate.value == pytest.approx(7.0 / 77.0, rel=0.01)


def test_which_signals_are_a_slow_clients() -> None:
    assert only_timing(LATE) and only_timing(LATE | BLURRED)
    assert not only_timing({}) and not only_timing({"client_lag_p99_ms": FINE})
    assert not only_timing(LATE | {"sent_share": {"value": 0.5, "limit": 0.99, "ok": False}})
    assert over_limits(LATE | {"dead_workers": 0.0, "telemetry": None}) == {"client_lag_p99_ms"}


def test_one_percent_or_half_a_millisecond() -> None:
    ttft, rate = FIGURES["ttft_p50_ms"], FIGURES["throughput_requests_per_s"]
    assert is_sound(ttft, None) and is_sound(ttft, Moved(20.0, 0.5)) and not is_sound(ttft, Moved(20.0, 0.51))
    assert is_sound(ttft, Moved(1000.0, 9.0)) and not is_sound(ttft, Moved(1000.0, 11.0))
    assert is_sound(rate, Moved(10.0, 0.0, 0.09)) and not is_sound(rate, Moved(10.0, 0.0, 0.2))
    unknown = dataclasses.replace(Moved(None), down=float("inf"))
    assert not is_sound(ttft, unknown) and unknown.share is None
