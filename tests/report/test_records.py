import json
import math

import pandas as pd
import pytest

from tfbench.report.model import LoadPoint
from tfbench.report.records import counts_of, figures_of, missing, opt_float, opt_int, reasons_of, runs_of, signals_of


@pytest.mark.parametrize("value", [None, math.nan, pd.NA, pd.NaT])
def test_every_spelling_of_null_is_missing(value: object) -> None:
    assert missing(value)
    assert opt_float(value) is None
    assert opt_int(value) is None


@pytest.mark.parametrize("value", [0, 0.0, "", False, math.inf])
def test_zero_is_not_missing(value: object) -> None:
    assert not missing(value)


def test_infinity_is_no_number_but_is_a_load() -> None:
    row = {"load_value": math.inf, "figure": "x", "value": math.inf, "lo": 3.0, "settled": True}
    (figure,) = figures_of([row])
    assert figure.load == LoadPoint(math.inf)
    assert (figure.value, figure.lo, figure.hi, figure.one_sided) == (None, 3.0, None, True)


def test_signals_with_and_without_limits() -> None:
    stored = {
        "client_lag_p99_ms": {"value": 0.2, "limit": 1.0, "relation": "<=", "unit": "ms", "ok": True},
        "sent_share": {"value": None, "limit": 0.99, "relation": ">=", "unit": "", "ok": None},
        "bare": 3,
        "words": "kernel",
        "flag": True,
        "nested": {"gpu": 1},
    }
    lag, sent, bare, words, flag, nested = signals_of(json.dumps(stored))
    assert (lag.value, lag.limit, lag.unit, lag.ok) == (0.2, 1.0, "ms", True)
    assert (sent.value, sent.limit, sent.ok, sent.text) == (None, 0.99, None, None)
    assert (bare.value, words.text, flag.text, nested.text) == (3.0, "kernel", "true", '{"gpu":1}')
    assert signals_of(None) == ()


def test_reasons_are_lines_whatever_was_stored() -> None:
    assert reasons_of('["late", {"worker": 2}]') == ("late", '{"worker":2}')
    assert reasons_of('"one"') == ("one",)
    assert reasons_of(None) == ()


def test_runs_take_their_verdicts_and_stand_in_order() -> None:
    rows = [
        {"run_id": "b", "load_value": 4.0, "repeat": 0, "measure_start_ns": 10, "measure_end_ns": 10 + 2 * 10**9},
        {"run_id": "a", "load_value": 2.0, "repeat": 1, "measure_end_ns": math.nan},
    ]
    verdicts = [
        {"run_id": "a", "kind": "validity", "verdict": "INVALID", "reasons": '["late"]'},
        {"run_id": "b", "kind": "stability", "verdict": "unstable", "reasons": "[]"},
    ]
    first, second = runs_of(rows, verdicts)
    assert (first.run_id, first.invalid, first.unstable, first.window_s) == ("a", True, False, None)
    assert first.validity_reasons == ("late",)
    assert (second.run_id, second.invalid, second.unstable, second.window_s) == ("b", False, True, 2.0)


def test_counts_add_up_over_the_runs_of_a_load_point() -> None:
    rows = [
        {"load_value": 2.0, "arm": None, "counted": 10, "vacuous": 1},
        {"load_value": 2.0, "counted": 12, "vacuous": 2},
    ]
    (counts,) = counts_of(rows)
    assert (counts.counted, counts.vacuous, counts.excluded) == (22, 3, 0)
