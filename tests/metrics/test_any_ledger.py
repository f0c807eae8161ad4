"""Whatever a ledger holds, figures are numbers with a width, bounds, or nothing with a reason."""

import itertools
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.ledger.builder import MANIFEST, Row, answer, row, write_run
from tfbench.core.jsonio import dump_text
from tfbench.metrics import figures, run_figures
from tfbench.warehouse import Warehouse

BAD = ("timeout", "rejected", "http_error", "connect_error", "disconnected", "stream_error", "unfinished")
FREE = {"currency": "EUR", "resources": [{"name": "gpu", "hourly": 0.0, "count": 1}]}
MANIFESTS = (
    MANIFEST,
    MANIFEST | {"slo": {}},
    MANIFEST | {"slo": {"ttft_ms": 100, "tpot_ms": 5, "e2e_ms": 500}},
    MANIFEST | {"cost": None},
    MANIFEST | {"cost": FREE},
    MANIFEST | {"load": {"count": 5}},
)
_STUDIES = itertools.count()

# One attempt, but for its id: (at ms, what, ttft ms, gap ms, chunks).
ATTEMPT = st.tuples(
    st.integers(-100, 1100),
    st.sampled_from(["answer", "answer", "answer", "silent", "no tokens", "unknown", "unsent", "cancelled", *BAD]),
    st.sampled_from([0.0, 50.0, 50.0, 99.9, 100.0, 379.5, 5000.0]),
    st.sampled_from([0.0, 10.0, 250.0]),
    st.integers(1, 4),
)
RUN = st.lists(ATTEMPT, max_size=15) | ATTEMPT.flatmap(lambda one: st.just([one] * 20))


@pytest.fixture(scope="module")
def warehouse() -> Iterator[Warehouse]:
    with tempfile.TemporaryDirectory() as folder, Warehouse.open(Path(folder) / "w.duckdb") as opened:
        yield opened


def as_row(attempt_id: int, one: tuple[int, str, float, float, int]) -> Row:
    at, what, ttft, gap, n = one
    if what == "answer":
        return answer(attempt_id, at, ttft=ttft, gap=gap, n=n)
    if what == "unknown":
        return row(attempt_id, at, [(ttft + i * gap, "text", None) for i in range(n)])
    if what == "no tokens":
        return row(attempt_id, at, [(ttft, "empty", 0)], output_tokens=0, prompt_tokens=10)
    if what == "silent":
        return row(attempt_id, at, output_tokens=0)
    if what == "unsent":
        return row(attempt_id, at, sent=None, outcome="unsent", stream=False)
    return row(attempt_id, at, [(ttft, "text", 1)] if gap else [], outcome=what)


def honest(one: dict[str, Any]) -> None:
    numbers = [one[name] for name in ("value", "lo", "hi", "n_eff") if name in one]
    assert all(number is None or math.isfinite(number) for number in numbers), one
    assert one["value"] is not None or one["reason"], one
    if "lo" in one:
        assert one["reason"] or None not in (one["lo"], one["hi"]), one
        assert one["lo"] is None or one["hi"] is None or one["lo"] <= one["hi"], one
        assert one["method"], one
    # Nothing counted is never a bare 0.
    assert one["value"] != 0 or one["n"] or one["reason"] or one.get("hi"), one


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(RUN, min_size=1, max_size=5), manifest=st.sampled_from(MANIFESTS))
@example(runs=[[]], manifest=MANIFEST)
@example(runs=[[(0, "answer", 50.0, 10.0, 1)]], manifest=MANIFEST)
@example(runs=[[(0, "timeout", 0.0, 0.0, 1)] * 20] * 5, manifest=MANIFEST)
@example(runs=[[(0, "unfinished", 50.0, 10.0, 1)] * 20] * 5, manifest=MANIFEST)
@example(runs=[[(9 * i, "answer", 50.0, 10.0, 3) for i in range(25)]] * 6, manifest=MANIFEST)
@example(runs=[[(0, "no tokens", 50.0, 0.0, 1)] * 5] * 3, manifest=MANIFEST)
def test_any_ledger_gives_honest_figures(
    warehouse: Warehouse, runs: list[list[tuple[int, str, float, float, int]]], manifest: dict[str, Any]
) -> None:
    study = f"study-{next(_STUDIES)}"
    with tempfile.TemporaryDirectory() as folder:
        for repeat, run in enumerate(runs):
            rows = [as_row(i, one) for i, one in enumerate(sorted(run))]
            facts = {"run_id": f"{study}-{repeat}", "study_id": study, "repeat": repeat, "manifest": manifest}
            warehouse.ingest(write_run(Path(folder), rows, **facts))
    for frame in (figures(warehouse.con, study), run_figures(warehouse.con, study)):
        found = frame.to_dict("records")
        assert found
        for one in found:
            honest(one)
        assert len(json.loads(dump_text(found))) == len(found)
