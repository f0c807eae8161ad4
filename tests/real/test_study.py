"""Whole studies of a real engine: what the ledger says is what the server counted."""

import os
import re
from pathlib import Path

import httpx
import pytest

from real.llama_server import MODEL_ALIAS, start_llama_server
from tfbench.manifest import load_manifest
from tfbench.report import build_report, html_report
from tfbench.study import run_study
from tfbench.warehouse import Warehouse

REPO = Path(__file__).resolve().parents[2]
MANIFEST = REPO / "manifests" / "llama-server.toml"
COUNTER = re.compile(r"^llamacpp:tokens_predicted_total (\S+)$", re.MULTILINE)


def served_tokens(base_url: str) -> float:
    found = COUNTER.search(httpx.get(base_url.removesuffix("/v1") + "/metrics", timeout=30).text)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_completions"])
@pytest.mark.parametrize("stream", ["true", "false"])
def test_tokens_add_up_with_the_servers_own_count(base_url: str, dialect: str, stream: str, tmp_path: Path) -> None:
    sets = [
        "load.rates=[2]",
        "load.count=4",
        "load.repeats=1",
        f'endpoint.dialect="{dialect}"',
        f"endpoint.stream={stream}",
    ]
    manifest = load_manifest(MANIFEST, sets, base_url)
    before = served_tokens(base_url)
    done = run_study(manifest, tmp_path / "w.duckdb", reruns=0)
    served = served_tokens(base_url) - before
    with Warehouse.open(done.warehouse, read_only=True) as store:
        rows = store.con.execute(
            "SELECT role, outcome, finish_reason, output_tokens, token_source FROM attempts ORDER BY role"
        ).fetchall()
        page = html_report(build_report(store, done.study_id))
    assert sum(row[3] for row in rows) == served
    load = [row[1:] for row in rows if row[0] == "load"]
    assert load == [("ok", "length", 16, "usage")] * 4
    assert "llama-server-smollm2" in page


@pytest.mark.parametrize("adapter", ["llama-server", "openai"])
def test_no_request_is_lost_to_a_connection_that_was_closing(adapter: str, tmp_path: Path) -> None:
    # It promises to keep connections for 5 s, and closes each once it has answered.
    manifest = f"""
model = {{ name = "{MODEL_ALIAS}" }}
endpoint = {{ adapter = "{adapter}", connections = "pooled" }}
workload = {{ input_tokens = 4, output_tokens = 2 }}
load = {{ mode = "closed", concurrency = [12], count = 30, repeats = 1, warmup_s = 0, drain_s = 60 }}
"""
    path = tmp_path / "m.toml"
    path.write_text(manifest)
    with start_llama_server(REPO / os.environ.get("REAL_VENV", ".venv-real"), only="xllamacpp") as url:
        done = run_study(load_manifest(path, (), url), tmp_path / "w.duckdb")
    with Warehouse.open(done.warehouse, read_only=True) as store:
        rows = store.con.execute("SELECT outcome, count(*) FROM attempts WHERE role = 'load' GROUP BY 1").fetchall()
        [(lost,)] = store.con.execute("SELECT observed->>'lost_to_closing' FROM runs").fetchall()
    outcomes = dict(rows)
    assert outcomes["ok"] >= 30 and set(outcomes) <= {"ok", "unfinished"}
    assert lost == "0"
