"""What warms a cache before a run, sent and simulated."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.load.scripted import Step, ok_script, reply, serving
from tfbench.core.errors import EndpointError, UsageError
from tfbench.core.redact import Redactor
from tfbench.engine.config import EngineConfig
from tfbench.manifest import Manifest, RunPlan, expand, freeze, parse_manifest
from tfbench.study import Silent
from tfbench.study.prime import prime, prime_items
from tfbench.study.simulate import System, simulate_study
from tfbench.warehouse import Warehouse
from tfbench.workload import build_workload

CLASSES = [
    {"name": "a", "share": 1, "lora": "x"},
    {"name": "b", "share": 1e-5, "tenant": "t"},
    {"name": "c", "share": 1, "lora": "x"},
]


def planned(**tables: Any) -> tuple[Manifest, RunPlan]:
    document = {
        "model": {"name": "m", "lora": ["x"]},
        "workload": {"input_tokens": 5, "output_tokens": 9, "shared_prefix_tokens": 6},
        "load": {"cache": "warm", "rates": [20], "duration_s": 5, "warmup_s": 0, "repeats": 1},
    }
    made = parse_manifest({name: value | tables.get(name, {}) for name, value in document.items()}, "test")
    return freeze(made).manifest, expand(made)[0]


def test_the_prefix_is_primed_with_words_of_nobodys_for_each_lora_and_tenant() -> None:
    made, plan = planned(workload={"classes": CLASSES}, load={"prime": {"count": 2}})
    items = [item for _, item in prime_items(made, plan)]
    assert [(item.lora, item.tenant, item.max_tokens) for item in items] == [
        *[("x", None, 1)] * 2,
        *[(None, "t", 1)] * 2,
    ]
    workload = build_workload(made, plan)
    assert all(item.prompt.startswith(workload.prefix) for item in items)
    load = {workload.item(i).prompt.split()[6] for i in range(200)}
    tails = {item.prompt.split()[6] for item in items}
    assert len(tails) == 4 and not tails & load


def test_prompts_are_the_runs_own_first_ones() -> None:
    made, plan = planned(load={"prime": {"set": "prompts", "count": 3}})
    workload = build_workload(made, plan)
    assert [(i, item.prompt) for i, item in prime_items(made, plan)] == [(i, workload.item(i).prompt) for i in range(3)]


def test_nothing_is_primed_unless_the_cache_is_declared_warm() -> None:
    made, plan = planned(load={"cache": "cold"})
    assert list(prime_items(made, plan)) == []


def send(script: Any, **tables: Any) -> tuple[tuple[dict[str, Any], ...], list[dict[str, Any]]]:
    made, plan = planned(**tables)
    with serving(script) as server:
        rows = prime(
            made, plan, f"http://127.0.0.1:{server.port}/v1", {"X-Key": "s3cret"}, Redactor(["s3cret"]), Silent()
        )
        bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests]
    return rows, bodies


def test_each_priming_request_is_a_row_beside_the_load() -> None:
    rows, bodies = send(ok_script, workload={"classes": CLASSES})
    assert [(body["model"], body.get("user"), body["max_tokens"]) for body in bodies] == [("x", None, 1), ("m", "t", 1)]
    assert [(row["role"], row["attempt_id"], row["task_id"], row["lora"], row["tenant"]) for row in rows] == [
        ("prime", -2, "prime-1", "x", None),
        ("prime", -3, "prime-2", None, "t"),
    ]
    assert all(row["output_tokens"] == 2 and row["try"] is None and row["prompt_sha256"] for row in rows)
    assert len({row["request_id"] for row in rows}) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply("503 Unavailable", b'{"error": {"message": "busy s3cret"}}'), "busy [redacted]"),
        (reply("200 OK", b'{"error": {"message": "no memory"}}'), "no memory"),
        ([b"HTTP/1.1 200 OK\r\n", None], ""),
    ],
)
def test_one_that_fails_leaves_no_warm_cache(answer: list[Step], said: str) -> None:
    def script(index: int, request: bytes) -> Iterable[Step]:
        return ok_script(index, request) if index == 0 else answer

    with pytest.raises(EndpointError) as caught:
        send(script, load={"prime": {"count": 3}})
    text = str(caught.value)
    assert "priming request 2 of 3 failed" in text and said in text and "\n" not in text and "s3cret" not in text


@pytest.mark.parametrize(("kind", "cached_tokens"), [("prefix", 64), ("prompts", 80)])
def test_a_simulated_cache_is_as_warm(kind: str, cached_tokens: int, tmp_path: Path) -> None:
    made, _ = planned(
        workload={"input_tokens": 17, "shared_prefix_tokens": 64}, load={"prime": {"set": kind, "count": 300}}
    )
    config = EngineConfig(prefix_reuse=True)
    done = simulate_study(made, tmp_path / "w.duckdb", [System("s", config)])
    with Warehouse.open(done.warehouse, read_only=True) as store:
        [(cached, prompts, first)] = store.con.execute(
            "SELECT sum(cached_tokens), sum(prompt_tokens), min(scheduled_ns) FROM attempts WHERE role = 'load'"
        ).fetchall()
        primes = store.con.execute(
            "SELECT count(*), max(end_ns), min(cached_tokens) FROM attempts WHERE role = 'prime'"
        ).fetchall()
        state = store.con.execute("SELECT cache_state, restart, observed->>'$.cache.primes' FROM runs").fetchall()
    # Whole blocks of 16 tokens, of 81.
    assert cached / prompts == pytest.approx(cached_tokens / 81)
    assert primes == [(300, primes[0][1], 0)] and primes[0][1] < first
    assert state == [("warm", None, "300")]


def test_a_prime_that_cannot_be_simulated_is_one_line(tmp_path: Path) -> None:
    made, _ = planned(load={"prime": {"count": 1}})
    with pytest.raises(UsageError, match=r"load\.prime: a priming request can't be served"):
        simulate_study(made, tmp_path / "w.duckdb", [System("s", EngineConfig(max_model_len=8))])
