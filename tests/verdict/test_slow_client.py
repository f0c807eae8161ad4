"""Comparisons and gates of runs whose client was slow: what it left alone is evidence, with so much less certainty."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.ledger.builder import Row, answer, ns
from tests.verdict.ledgers import add_study, latencies
from tfbench.stats.effect import StudentEffect, WidenedEffect
from tfbench.verdict.arms import match_runs, read_arm
from tfbench.verdict.cells import Cell, build_cells, effect_of, spoiled
from tfbench.verdict.gate import judge, sound_for
from tfbench.verdict.gate_document import Judged
from tfbench.verdict.policy import parse_policy
from tfbench.warehouse import Warehouse

SLOW = {"client_lag_p99_ms": {"value": 9.0, "limit": 1.0, "ok": False}}
POLICY = parse_policy(
    {
        "min_repeats": 4,
        "metric": [
            {"name": "ttft_p50_ms", "margin": {"relative": 0.1}},
            {"name": "e2e_p50_ms", "margin": {"relative": 0.1}},
        ],
    }
)


def late(repeat: int, arm: int, lag_ms: float, scale: float = 1.0) -> list[Row]:
    """Answers of ~45 ms TTFT, ten chunks 20 ms apart, all sent `lag_ms` late."""
    rows = []
    for i, ttft in enumerate(latencies(repeat, arm=arm, scale=scale)):
        at = i * 6.0
        lagged = {"sent": lag_ms, "dispatched_ns": ns(at + lag_ms)}
        rows.append(answer(i, at, ttft=float(ttft) + lag_ms, gap=20.0, n=10, **lagged))
    return rows


@contextlib.contextmanager
def cells_of(folder: Path, lags: tuple[Sequence[float], Sequence[float]], scale: float = 1.0):  # type: ignore[no-untyped-def]
    path = folder / "w.duckdb"
    for number, (name, own) in enumerate(zip(("base", "candidate"), lags, strict=True)):
        for repeat, lag in enumerate(own):
            # One run at a time, each with its own signals.
            slow = (repeat,) if lag > 1.0 else ()
            facts = {"signals": SLOW} if slow else {}
            add_study(
                path,
                name,
                lambda _, repeat=repeat, lag=lag, number=number: late(repeat, number, lag, scale if number else 1.0),
                repeats=1,
                invalid=(0,) if slow else (),
                run_id=f"{name}-{repeat}",
                repeat=repeat,
                order_index=repeat,
                seed=repeat + 1,
                schedule_sha256=f"s{repeat}",
                **facts,
            )
    with Warehouse.open(path, read_only=True) as store:
        arms = [read_arm(store.con, name) for name in ("base", "candidate")]
        matches = match_runs(*arms)
        sides = [(store.con, arm) for arm in arms]
        yield arms, matches, sides


def gated(
    folder: Path, base: Sequence[float], candidate: Sequence[float], scale: float = 1.0
) -> tuple[Judged, list[Cell]]:
    with cells_of(folder, (base, candidate), scale) as (arms, matches, sides):
        cells = build_cells(*sides, matches, POLICY.names, sound=sound_for(POLICY))
        return judge(POLICY, *arms, matches, cells), cells


def test_a_lag_under_a_tenth_of_the_margin_leaves_the_gate_its_pairs(tmp_path: Path) -> None:
    # 2 ms of some 225 ms: under a tenth of 10 % for E2E, over it for a TTFT of 45 ms.
    found, cells = gated(tmp_path, [2.0] * 5, [2.0] * 5)
    rows = {row.figure: row for row in found.rows}
    assert rows["e2e_p50_ms"].verdict == "PASS" and rows["e2e_p50_ms"].k == 5
    ttft = next(cell for cell in cells if cell.figure.name == "ttft_p50_ms")
    assert spoiled(ttft) == 5 and rows["ttft_p50_ms"].verdict == "INCONCLUSIVE"
    assert found.verdict == "INVALID"
    assert any("this machine's client was slow and spoiled ttft_p50_ms in 5 of 5 pairs" in one for one in found.reasons)


def test_spoiled_pairs_are_left_out_while_enough_are_left(tmp_path: Path) -> None:
    found, _ = gated(tmp_path, [2.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 5)
    rows = {row.figure: row for row in found.rows}
    assert found.verdict == "PASS" and (rows["ttft_p50_ms"].k, rows["e2e_p50_ms"].k) == (4, 5)


def test_a_slower_candidate_fails_all_the_same(tmp_path: Path) -> None:
    found, _ = gated(tmp_path, [0.0] * 5, [2.0, 0.0, 0.0, 0.0, 0.0], scale=1.4)
    assert found.verdict == "FAIL"


def test_an_effect_has_room_for_what_the_client_did(tmp_path: Path) -> None:
    with cells_of(tmp_path, ([0.3] * 5, [1.5] * 5)) as (_, matches, sides):
        cells = {cell.figure.name: cell for cell in build_cells(*sides, matches, ("e2e_p50_ms", "tpot_p50_ms"))}
    moved = effect_of(cells["e2e_p50_ms"], relative=True)
    assert isinstance(moved, WidenedEffect) and isinstance(moved.effect, StudentEffect)
    # The candidate's own lag made it look slower by up to 1.5 ms of 225; nothing made it look faster.
    assert moved.down == pytest.approx(1.5 / 225, rel=0.2) and moved.up == 0.0
    assert not isinstance(effect_of(cells["tpot_p50_ms"], relative=True), WidenedEffect)


def test_a_widened_effect_is_less_sure_either_way() -> None:
    plain = StudentEffect(0.05, 0.01, 4.0, 5, "t")
    wide = WidenedEffect(plain, 0.02, 0.01)
    assert wide.above(0.0) == pytest.approx(plain.above(0.02)) and wide.above(0.0) > plain.above(0.0)
    assert wide.below(0.1) == pytest.approx(plain.below(0.09)) and wide.below(0.1) > plain.below(0.1)
    low, high = plain.bounds(0.95)
    assert wide.bounds(0.95) == (low - 0.02, high + 0.01)
    assert wide.grown(4.0).spread == plain.spread / 2 and wide.grown(4.0).down == 0.02  # type: ignore[attr-defined]
    assert np.isfinite(wide.estimate or 0.0) and (wide.k, wide.method) == (5, "t")
