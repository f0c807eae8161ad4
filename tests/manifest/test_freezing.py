"""Ids: what they cover, that they don't depend on spelling or machine, and that a frozen document keeps them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from tfbench.manifest import Manifest, freeze, load_manifest, parse_manifest

TOML = """
name = "golden"
[model]
name = "m"
[engine]
args = { max-num-seqs = 8, enforce-eager = true }
[endpoint]
adapter = "vllm"
url = "http://127.0.0.1:8000/v1"
headers = { Authorization = "env:API_KEY" }
[workload]
input_tokens = { dist = "lognormal", mean = 512, cv = 0.8, max = 4096 }
[load]
process = "gamma"
burstiness = 0.5
rates = [2, 4.5]
seed = 7
[slo]
ttft_ms = 500
icl_ms = { p99 = 100 }
[cost]
resources = [{ name = "H100", hourly = 2.5 }]
"""


def manifest(tmp_path: Path, text: str = TOML, *sets: str, url: str | None = None) -> Manifest:
    path = tmp_path / "m.toml"
    path.write_text(text, encoding="utf-8")
    return load_manifest(path, sets, url)


def test_ids_are_these_on_every_machine(tmp_path: Path) -> None:
    frozen = freeze(manifest(tmp_path))
    assert frozen.workload_id == "87303c67bd4a2cfdc4023a69913e5d7f1063c4f7739a58f852c991dd0f62ec33"
    assert frozen.system_id == "0bdf086b7b71fa5424ffb4092319f0d9c3e86bbdf52a06ea0b35b2239948daaa"
    assert frozen.manifest_id == "79717a74c9f0e8715550473e8f62f1edbba13935c783e6c27ac18622625493b5"


def test_ids_are_sha256_of_sorted_compact_json(tmp_path: Path) -> None:
    frozen = freeze(manifest(tmp_path))

    def by_hand(value: Any) -> str:
        # For ASCII keys and short decimals RFC 8785 is json.dumps with sorted keys and no spaces.
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    document = frozen.document
    assert frozen.manifest_id == by_hand(document)
    tables = ("workload", "sampling", "load", "slo", "quality", "accounting")
    assert frozen.workload_id == by_hand({table: document[table] for table in tables})
    assert frozen.system_id == by_hand(
        {table: document[table] for table in ("model", "engine", "topology", "endpoint")}
    )
    assert document["schema_version"] == 1


def test_frozen_document_loads_back_to_the_same_ids(tmp_path: Path) -> None:
    frozen = freeze(manifest(tmp_path))
    for option in (0, orjson.OPT_INDENT_2, orjson.OPT_SORT_KEYS):
        path = tmp_path / "frozen.json"
        path.write_bytes(orjson.dumps(frozen.document, option=option))
        again = freeze(load_manifest(path))
        assert again.document == frozen.document
        assert again.manifest_id == frozen.manifest_id
        assert again.manifest == frozen.manifest


def test_younger_keys_stand_in_a_document_only_where_they_are_used(tmp_path: Path) -> None:
    document = freeze(manifest(tmp_path)).document
    assert not {"ramp", "retry", "cancel", "timestamps", "cache", "prime"} & set(document["load"])
    assert "hooks" not in document
    assert "connections" not in document["endpoint"]
    assert not {"classes", "shared_prefix_tokens"} & set(document["workload"])
    sets = (
        "endpoint.connections=per_session",
        "endpoint.preconnect=4",
        "load.ramp={ to = 5 }",
        "load.retry={}",
        "load.cancel={ share = 0.5, after_s = 1 }",
        "workload.classes=[{ name = 'a', share = 1 }]",
        "workload.shared_prefix_tokens=64",
        "load.cache=warm",
        "hooks.restart=engine",
        "engine.args={ profile = 'reference' }",
    )
    used = freeze(manifest(tmp_path, TOML, *sets))
    load = used.document["load"]
    assert load["ramp"] == {"to": 5, "shape": "linear"}
    assert load["cancel"] == {"share": 0.5, "after_s": 1, "after_chunks": None}
    assert load["retry"] == {
        "outcomes": ["rejected", "connect_error"],
        "max": 2,
        "backoff_s": 0.5,
        "factor": 2,
        "cap_s": 30,
        "honour_retry_after": True,
    }
    assert used.document["endpoint"]["connections"] == "per_session"
    assert used.document["endpoint"]["preconnect"] == 4
    assert used.document["workload"]["classes"][0]["share"] == 1
    assert used.document["workload"]["shared_prefix_tokens"] == 64
    assert (load["cache"], load["prime"]) == ("warm", {"set": "prefix", "count": 1})
    assert used.document["hooks"] == {"restart": "engine", "flush": None, "timeout_s": 120, "ready_s": 600}
    assert freeze(parse_manifest(used.document, "again")).manifest_id == used.manifest_id


@pytest.mark.parametrize(
    "written",
    [
        ("rates = [2, 4.5]", "rates = [2.0, 4.5]"),
        ("seed = 7", "seed = 7.0"),
        ("mean = 512", "mean = 512.0"),
        ("ttft_ms = 500", "ttft_ms = { max = 500.0 }"),
        ('url = "http://127.0.0.1:8000/v1"', 'url = "http://127.0.0.1:8000/v1/"'),
        ('adapter = "vllm"', 'adapter = "vllm"\nconnections = "pooled"\npreconnect = 0'),
        ('adapter = "vllm"', 'adapter = "vllm"\ndialect = "openai_chat"\nstream = true'),
        ("[slo]", "[sampling]\nignore_eos = true\n[slo]"),
        ("hourly = 2.5", "hourly = 2.50, count = 1"),
        ("[slo]", "[hooks]\ntimeout_s = 120.0\nready_s = 600\n[slo]"),
    ],
)
def test_spelling_does_not_change_an_id(tmp_path: Path, written: tuple[str, str]) -> None:
    old, new = written
    assert old in TOML
    assert freeze(manifest(tmp_path, TOML.replace(old, new))).manifest_id == freeze(manifest(tmp_path)).manifest_id


@pytest.mark.parametrize(
    ("setting", "workload", "system"),
    [
        ("name=other", False, False),
        ("cost.currency=EUR", False, False),
        ("storage.text=true", False, False),
        ("load.seed=8", True, False),
        ("load.rates=[2]", True, False),
        ("workload.output_tokens=64", True, False),
        ("workload.classes=[{ name = 'a', share = 1 }]", True, False),
        ("workload.shared_prefix_tokens=64", True, False),
        ("load.ramp={ to = 5 }", True, False),
        ("load.retry={}", True, False),
        ("load.cancel={ share = 0.1, after_s = 1 }", True, False),
        ("load.cache=cold", True, False),
        ("hooks.restart=['restart', 'it']", False, False),
        ("endpoint.connections=per_request", False, True),
        ("sampling.temperature=1", True, False),
        ("slo.e2e_ms=1000", True, False),
        ("accounting.unit=task", True, False),
        ("model.kv=fp8", False, True),
        ("engine.version=1", False, True),
        ("topology.gpus=8", False, True),
        ("endpoint.stream=false", False, True),
    ],
)
def test_each_id_covers_its_tables(tmp_path: Path, setting: str, workload: bool, system: bool) -> None:
    if setting == "engine.version=1":
        setting = 'engine.version="1"'
    before, after = freeze(manifest(tmp_path)), freeze(manifest(tmp_path, TOML, setting))
    assert (before.workload_id != after.workload_id) is workload
    assert (before.system_id != after.system_id) is system
    assert before.manifest_id != after.manifest_id


def test_set_and_url_are_applied_before_freezing(tmp_path: Path) -> None:
    frozen = freeze(manifest(tmp_path, TOML, "load.rates=[2,4]", url="http://other:9"))
    assert frozen.document["load"]["rates"] == [2, 4]
    assert frozen.document["endpoint"]["url"] == "http://other:9/v1"


def test_adapter_defaults_are_resolved(tmp_path: Path) -> None:
    for adapter, ignore_eos in (("vllm", True), ("openai", False)):
        frozen = freeze(manifest(tmp_path, TOML, f"endpoint.adapter={adapter}"))
        assert frozen.document["endpoint"]["dialect"] == "openai_chat"
        assert frozen.document["sampling"]["ignore_eos"] is ignore_eos
        assert frozen.manifest.sampling.ignore_eos is ignore_eos
    kept = freeze(manifest(tmp_path, TOML, "sampling.ignore_eos=false", "endpoint.dialect=openai_completions"))
    assert kept.manifest.sampling.ignore_eos is False
    assert kept.manifest.endpoint.dialect == "openai_completions"


def test_document_is_plain_json_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    text = json.dumps(freeze(manifest(tmp_path)).document, allow_nan=False)
    assert '"Authorization": "env:API_KEY"' in text
    assert "hunter2" not in text


def test_an_infinite_rate_is_a_text_in_the_document(tmp_path: Path) -> None:
    frozen = freeze(manifest(tmp_path, '[model]\nname="m"\n[load]\nrates=[inf]\ncount=5'))
    assert frozen.document["load"]["rates"] == ["inf"]
    assert freeze(parse_manifest(frozen.document, "again")).manifest_id == frozen.manifest_id
