"""Every figure of the definitions, per attempt and per run, against the golden ledger's paper sums."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.metrics.golden_build import EPOCH_NS, GoldenRun, Row, cases, tables
from tests.metrics.golden_ledger import RUNS
from tests.metrics.golden_more import D_COST_OF_ONE_TOKEN, E_UNKNOWN, D, E
from tfbench.ledger.bundle import write_bundle
from tfbench.manifest import freeze, load_manifest
from tfbench.metrics import attempt_figures, figures, outcomes, run_figures
from tfbench.warehouse import Warehouse

LOAD = [pytest.param(run, row, id=f"{run.key}{row.n}") for run, row in cases(RUNS) if row.role == "load"]
EACH_RUN = [pytest.param(run, id=run.key) for run in RUNS]


def _ingest(warehouse: Warehouse, run: GoldenRun, folder: Path) -> None:
    path = folder / f"{run.key}.toml"
    path.write_text(run.toml)
    frozen = freeze(load_manifest(path))
    start, end = run.window
    facts = {
        "study_id": run.study_id,
        "created_ns": EPOCH_NS,
        "tfbench_version": "golden",
        "host": {"name": "golden"},
        "run_id": run.run_id,
        "manifest_id": frozen.manifest_id,
        "workload_id": frozen.workload_id,
        "system_id": frozen.system_id,
        "mode": run.mode,
        "load_value": run.load_value,
        "repeat": 0,
        "order_index": 0,
        "seed": 7,
        "schedule_sha256": "0" * 64,
        "status": "complete",
        "measure_start_ns": run.ns(start),
        "measure_end_ns": run.ns(end),
        "origin": "measured",
    }
    write_bundle(folder / run.run_id, manifest=frozen.document, run=facts, tables=tables(run))
    assert warehouse.ingest(folder / run.run_id) == run.run_id


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """All golden runs, each a study of its own, bundled and ingested as the study room does it."""
    folder = tmp_path_factory.mktemp("golden")
    with Warehouse.open(folder / "golden.duckdb") as opened:
        for run in RUNS:
            _ingest(opened, run, folder)
        yield opened


Record = dict[str, Any]


def _records(frame: pd.DataFrame) -> list[Record]:
    return [{str(name): value for name, value in record.items()} for record in frame.to_dict("records")]


@pytest.fixture(scope="module")
def attempts(warehouse: Warehouse) -> dict[tuple[str, int], Record]:
    frames = {run.key: attempt_figures(warehouse.con, run.study_id, gaps=True) for run in RUNS}
    return {(key, int(record["attempt_id"])): record for key, frame in frames.items() for record in _records(frame)}


@pytest.fixture(scope="module")
def by_run(warehouse: Warehouse) -> dict[str, dict[str, Record]]:
    frames = {run.key: run_figures(warehouse.con, run.study_id) for run in RUNS}
    return {key: {record["figure"]: record for record in _records(frame)} for key, frame in frames.items()}


@pytest.fixture(scope="module")
def by_point(warehouse: Warehouse) -> dict[str, dict[str, Record]]:
    frames = {run.key: figures(warehouse.con, run.study_id) for run in RUNS}
    return {key: {record["figure"]: record for record in _records(frame)} for key, frame in frames.items()}


def _plain(value: Any) -> Any:
    """None for any spelling of null."""
    return None if pd.isna(value) else value


def _same(found: Any, wanted: float | None) -> bool:
    """Equal to a picosecond, or to 1e-12 of it (a literal gives 15 digits); null only where null is wanted."""
    value = _plain(found)
    if wanted is None or value is None:
        return value is None and wanted is None
    return bool(value == pytest.approx(wanted, rel=1e-12, abs=1e-9))


@pytest.mark.parametrize(("run", "row"), LOAD)
def test_attempt(run: GoldenRun, row: Row, attempts: dict[tuple[str, int], Record]) -> None:
    found, want = attempts[run.key, row.n], row.want
    wanted: dict[str, float | None] = {
        "ttft_ms": want.ttft,
        "ttft_service_ms": want.ttft_service,
        "tpot_ms": want.tpot,
        "tpot_after_first_ms": want.after_first,
        "icl_max_ms": max(want.gaps, default=None),
        "e2e_ms": want.e2e,
        "e2e_service_ms": want.e2e_service,
        "client_lag_ms": want.lag,
    }
    wrong: dict[str, tuple[Any, Any]] = {
        name: (found[name], value) for name, value in wanted.items() if not _same(found[name], value)
    }
    gaps = found["gaps_ms"]
    gaps = () if gaps is None or pd.api.types.is_scalar(gaps) else tuple(gaps)  # no output: null or empty
    if gaps != pytest.approx(want.gaps, rel=1e-12, abs=1e-9):
        wrong["gaps_ms"] = (gaps, want.gaps)
    facts = {
        "counted": want.counted,
        "in_window": want.in_window,
        "good": want.good,
        "vacuous": bool(want.vacuous) and want.counted,
    }
    wrong |= {name: (found[name], value) for name, value in facts.items() if _plain(found[name]) is not value}
    # An attempt without output has no chunk that could carry one token: false or null, as the view likes.
    if bool(_plain(found["one_token_per_chunk"])) is not want.one_token:
        wrong["one_token_per_chunk"] = (found["one_token_per_chunk"], want.one_token)
    assert not wrong, f"{row.what}: (found, paper) {wrong}"


def test_probe_is_in_no_figure(attempts: dict[tuple[str, int], Record]) -> None:
    probes = [(run.key, row.n) for run, row in cases(RUNS) if row.role == "probe"]
    assert probes
    for key in probes:
        assert key not in attempts or attempts[key]["counted"] is False


@pytest.mark.parametrize("run", EACH_RUN)
def test_run_figures(run: GoldenRun, by_run: dict[str, dict[str, Record]]) -> None:
    found = by_run[run.key]
    wrong = {
        name: (_plain(found[name]["value"]), value)
        for name, value in run.figures.items()
        if not _same(found[name]["value"], value)
    }
    assert not wrong, f"(found, paper) {wrong}"


@pytest.mark.parametrize("run", EACH_RUN)
def test_a_figure_without_a_value_says_why(run: GoldenRun, by_run: dict[str, dict[str, Record]]) -> None:
    silent = [name for name, row in by_run[run.key].items() if _plain(row["value"]) is None and not row["reason"]]
    assert not silent


@pytest.mark.parametrize("run", EACH_RUN)
def test_figures_of_one_run_are_its_values(run: GoldenRun, by_point: dict[str, dict[str, Record]]) -> None:
    found = by_point[run.key]
    wrong = {
        name: (_plain(found[name]["value"]), value)
        for name, value in run.figures.items()
        if not _same(found[name]["value"], value)
    }
    assert not wrong, f"(found, paper) {wrong}"


@pytest.mark.parametrize("run", EACH_RUN)
def test_outcomes(run: GoldenRun, warehouse: Warehouse) -> None:
    frame = outcomes(warehouse.con, run.study_id)
    found = {(row["phase"], row["outcome"]): int(row["n"]) for row in frame.to_dict("records") if row["n"]}
    assert found == run.outcomes


@pytest.mark.parametrize("run", EACH_RUN)
def test_vacuous_attempts_are_counted(run: GoldenRun, attempts: dict[tuple[str, int], Record]) -> None:
    found = sum(bool(row["vacuous"]) for (key, _), row in attempts.items() if key == run.key and row["counted"])
    assert found == run.vacuous


@pytest.mark.parametrize("run", EACH_RUN)
def test_qualified_input_tokens(run: GoldenRun, by_run: dict[str, dict[str, Record]]) -> None:
    start_ms, end_ms = run.window
    wanted = run.qualified_input * 1000 / (end_ms - start_ms)
    assert _same(by_run[run.key]["qualified_input_tokens_per_s"]["value"], wanted)


def test_cost_of_nothing_qualified_is_a_lower_bound(by_point: dict[str, dict[str, Record]]) -> None:
    row = by_point[D.key]["cost_per_million_qualified_tokens"]
    assert _plain(row["value"]) is None and _plain(row["hi"]) is None and row["reason"]
    assert 0 < row["lo"] <= D_COST_OF_ONE_TOKEN


@pytest.mark.parametrize("name", E_UNKNOWN)
def test_unknown_token_counts_are_never_zero_in_silence(name: str, by_run: dict[str, dict[str, Record]]) -> None:
    row = by_run[E.key][name]
    assert row["reason"], f"{name} = {row['value']} says nothing about the attempt whose tokens are unknown"
