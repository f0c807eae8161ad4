"""The search for the highest valid load, on clients whose limit is known; one real calibration, short."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.study import calibrate as module
from tfbench.study.calibrate import CLOSE_ENOUGH, FIRST_RATE, HIGHEST_RATE, calibrate, search, store_calibration


def figures(rate: float, valid: bool, gap: float = 10.0) -> dict[str, Any]:
    return {
        "asked_per_s": rate,
        "validity": "VALID" if valid else "INVALID",
        "server_gap_ms": {"p50": gap},
        "reasons": [] if valid else ["late"],
    }


@given(st.floats(FIRST_RATE, HIGHEST_RATE * 0.99))
def test_the_limit_is_found_between_two_rates_that_are_close(limit: float) -> None:
    found = search(lambda rate: figures(rate, rate <= limit), lambda: True)
    assert found.highest is not None
    assert found.highest["asked_per_s"] <= limit
    assert found.limit == "client" and found.failed is not None
    # Rates are whole numbers, so the ratio may be met a little late.
    assert limit < found.failed["asked_per_s"] <= found.highest["asked_per_s"] * CLOSE_ENOUGH + 1
    assert len(found.probes) < 20


def test_one_failure_on_the_way_up_is_tried_again() -> None:
    seen = count()
    found = search(lambda rate: figures(rate, next(seen) != 1 and rate <= 1000), lambda: True)
    assert found.highest is not None and 800 <= found.highest["asked_per_s"] <= 1000


def test_a_client_that_never_holds_has_no_highest_load() -> None:
    found = search(lambda rate: figures(rate, False), lambda: True)
    assert found.highest is None and found.failed is not None and len(found.probes) == 2


def test_what_ends_the_way_up_is_told_apart() -> None:
    slow = search(lambda rate: figures(rate, True, 10.0 if rate < 500 else 20.0), lambda: True)
    assert slow.limit == "server" and slow.highest is not None and slow.highest["asked_per_s"] == 400
    assert slow.failed is None
    all_fine = search(lambda rate: figures(rate, True), lambda: True)
    assert all_fine.limit == "range" and all_fine.highest is not None
    assert all_fine.highest["asked_per_s"] == HIGHEST_RATE
    short = search(lambda rate: figures(rate, True), lambda: False)
    assert short.limit == "time" and len(short.probes) == 1


def test_a_calibration_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HIGHEST_RATE", FIRST_RATE)
    said: list[str] = []
    found = calibrate(1.0, said.append)
    # One probe always runs, whatever the time.
    assert len(found["probes"]) == len(said) == 1 and said[0].startswith("100 requests/s: ")
    probe = found["probes"][0]
    assert probe["mismatched"] == 0 and probe["ttft_error_ms"]["p50"] is not None and probe["cpu_us_per_chunk"] > 0
    held = probe["validity"] == "VALID"
    assert (found["highest_valid_requests_per_s"] == FIRST_RATE) == held == (found["at_highest"] is not None)
    store = tmp_path / "w.duckdb"
    store_calibration(store, found)
    store_calibration(store, found)
    with duckdb.connect(str(store), read_only=True) as con:
        rows = con.execute("SELECT host, t_ns, figures FROM calibrations ORDER BY t_ns").fetchall()
    assert len(rows) == 2 and rows[0][0] == found["host"]["name"] and rows[0][1] < rows[1][1]
    assert json.loads(rows[0][2])["limited_by"] == found["limited_by"]
