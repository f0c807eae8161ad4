"""The gate end to end: two served reference engines, run in turn and judged."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.study.conftest import until_fit
from tfbench.cli.app import app
from tfbench.engine.config import EngineConfig
from tfbench.engine.process import RunningEngine, start_engine
from tfbench.engine.step_time import StepTime
from tfbench.warehouse import Warehouse

MANIFEST = """
name = "{name}"
model = {{ name = "tfbench-engine" }}
endpoint = {{ adapter = "tfbench" }}
engine = {{ args = {{ step_ms = {step_ms} }} }}
workload = {{ input_tokens = 8, output_tokens = 8 }}
load = {{ rates = [60], duration_s = 0.6, warmup_s = 0.1, drain_s = 1, repeats = 3, seed = 3 }}
slo = {{ ttft_ms = 2000 }}
"""
POLICY = """
min_repeats = 3
[[metric]]
name = "ok_fraction"
margin = { absolute = 0.1 }
[[metric]]
name = "e2e_p50_ms"
margin = { relative = 0.25 }
"""


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[RunningEngine, RunningEngine]]:
    with (
        start_engine(EngineConfig(step_time=StepTime(base_ms=4.0))) as fast,
        start_engine(EngineConfig(step_time=StepTime(base_ms=8.0))) as slow,
    ):
        yield fast, slow


def gate(folder: Path, base: str, candidate: str, candidate_step_ms: int) -> tuple[int, dict[str, object]]:
    (folder / "base.toml").write_text(MANIFEST.format(name="base", step_ms=4))
    (folder / "candidate.toml").write_text(MANIFEST.format(name="candidate", step_ms=candidate_step_ms))
    (folder / "policy.toml").write_text(POLICY)
    names = [str(folder / name) for name in ("base.toml", "candidate.toml")]
    options = ["--policy", str(folder / "policy.toml"), "--warehouse", str(folder / "w.duckdb"), "--out", str(folder)]
    urls = ["--base-url", base, "--candidate-url", candidate]
    done = CliRunner().invoke(app, ["gate", "--run", *names, *options, *urls, "--reruns", "0", "--json"])
    assert done.stdout, done.output
    document: dict[str, object] = json.loads(done.stdout)
    return done.exit_code, document


def test_a_slower_engine_fails_twice_and_the_slower_figure_comes_first(
    engines: tuple[RunningEngine, RunningEngine], tmp_path: Path
) -> None:
    def attempt(number: int) -> tuple[Path, int, dict[str, object]]:
        folder = tmp_path / str(number)
        folder.mkdir()
        return folder, *gate(folder, engines[0].url, engines[1].url, candidate_step_ms=8)

    def judged(found: tuple[Path, int, dict[str, object]]) -> bool:
        confirmation = found[2]["confirmation"]
        return isinstance(confirmation, dict) and confirmation["verdict"] == "FAIL"

    folder, code, told = until_fit(attempt, judged)
    assert (code, told["verdict"]) == (1, "FAIL")
    assert told["rows"][0]["figure"] == "e2e_p50_ms" and told["rows"][0]["verdict"] == "FAIL"  # type: ignore[index]
    assert told["attribution"] == "attributable to engine.args.step_ms"
    assert told["confirmation"]["verdict"] == "FAIL"  # type: ignore[index]
    assert json.loads((folder / "verdict.json").read_text()) == told
    assert told["base"]["manifest"]["engine"]["args"] == {"step_ms": 4}  # type: ignore[index]
    with Warehouse.open(folder / "w.duckdb", read_only=True) as store:
        rows = store.con.execute(
            "SELECT arm, pair, repeat, schedule_sha256 FROM runs ORDER BY measure_start_ns"
        ).fetchall()
    assert len(rows) == 12
    assert [arm[0] for arm, *_ in rows[:6]] == list("bccbbc")
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first[1:] == second[1:], "a pair shares its schedule"
    assert len({sha for *_, sha in rows}) == 6, "confirmed on fresh runs"


def test_the_same_engine_twice_never_fails(engines: tuple[RunningEngine, RunningEngine], tmp_path: Path) -> None:
    code, told = gate(tmp_path, engines[0].url, engines[0].url, candidate_step_ms=4)
    assert told["verdict"] != "FAIL" and code in (0, 3, 4)
