"""Prompts of two studies: other words unless the salt is fixed or the cache is warm; the same test all the same."""

from pathlib import Path
from typing import Any

import pytest

from tests.load.scripted import ok_script, reply, serving
from tfbench.manifest import Manifest, expand, freeze, parse_manifest
from tfbench.report import build_report
from tfbench.report.overview import caution_notes
from tfbench.study import run_study
from tfbench.study.arms import open_arms, run_arms
from tfbench.study.record import study_salt
from tfbench.warehouse import Warehouse
from tfbench.workload import build_workload


def manifest(url: str | None = None, workload: dict[str, Any] | None = None, **load: Any) -> Manifest:
    document: dict[str, Any] = {
        "model": {"name": "m"},
        "workload": {"input_tokens": {"dist": "uniform", "min": 8, "max": 64}, "output_tokens": 4} | (workload or {}),
        "load": {"rates": [200], "count": 6, "repeats": 1, "warmup_s": 0, "drain_s": 5, "process": "constant"} | load,
    }
    if url is not None:
        document["endpoint"] = {"url": url}
    return parse_manifest(document, "test")


@pytest.mark.parametrize(
    "workload",
    [{}, {"shared_prefix_tokens": 9}, {"classes": [{"name": "a", "share": 1.0}, {"name": "b", "share": 1.0}]}],
)
def test_a_salt_changes_words_alone(workload: dict[str, Any]) -> None:
    made = manifest(workload=workload, cancel={"share": 0.3, "after_s": 1})
    plan = expand(made)[0]
    plain, salted, other = (build_workload(made, plan, salt) for salt in ("", "a", "b"))
    for i in range(50):
        items = [one.item(i) for one in (plain, salted, other)]
        assert len({item._replace(prompt="") for item in items}) == 1
        assert len({item.prompt.split()[0] for item in items}) == 3
        assert len({len(item.prompt.split()) for item in items}) == 1
    assert build_workload(made, plan).sha256(9) == plain.sha256(9)
    fixed = manifest(workload=workload, cancel={"share": 0.3, "after_s": 1}, salt="a")
    assert build_workload(fixed, expand(fixed)[0]).sha256(9) == salted.sha256(9)


def test_which_salt_a_study_has() -> None:
    assert study_salt(manifest()) != study_salt(manifest()) != ""
    assert study_salt(manifest(cache="cold")) != study_salt(manifest(cache="cold"))
    assert study_salt(manifest(salt="x")) == "x"
    assert study_salt(manifest(salt="")) == ""
    warm = {"cache": "warm", "prime": {"set": "prompts"}}
    assert study_salt(manifest(**warm)) == ""
    assert study_salt(manifest(**warm, salt="x")) == "x"


def test_the_salt_is_part_of_the_test_only_where_it_is_fixed() -> None:
    assert "salt" not in freeze(manifest()).document["load"]
    assert freeze(manifest(salt="x")).workload_id != freeze(manifest()).workload_id
    again = parse_manifest(freeze(manifest(salt="")).document, "again")
    assert again.load.salt == "" and freeze(again).manifest_id == freeze(manifest(salt="")).manifest_id


def prompts(warehouse: Path, study_id: str) -> list[str]:
    with Warehouse.open(warehouse, read_only=True) as store:
        rows = store.con.execute(
            "SELECT prompt_sha256 FROM attempts JOIN runs USING (run_id) WHERE study_id = ? AND role = 'load'"
            " ORDER BY attempt_id",
            [study_id],
        ).fetchall()
    return [sha for (sha,) in rows]


def observed_salt(warehouse: Path, study_id: str) -> str:
    with Warehouse.open(warehouse, read_only=True) as store:
        [(salt,)] = store.con.execute(
            "SELECT DISTINCT observed->'cache'->>'salt' FROM runs WHERE study_id = ?", [study_id]
        ).fetchall()
    return str(salt)


def test_a_study_can_be_made_again_with_its_salt(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with serving(ok_script) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        first, second = (run_study(manifest(url), path).study_id for _ in range(2))
        again = run_study(manifest(url, salt=observed_salt(path, first)), path).study_id
        arms = run_arms(open_arms(manifest(url), manifest(url), path))
    assert not set(prompts(path, first)) & set(prompts(path, second))
    assert prompts(path, again) == prompts(path, first)
    assert prompts(path, arms.base.study_id) == prompts(path, arms.candidate.study_id)
    assert observed_salt(path, arms.base.study_id) == observed_salt(path, arms.candidate.study_id) != ""


@pytest.mark.parametrize(("cached", "load", "told"), [(80, {}, True), (80, {"cache": "warm"}, False), (2, {}, False)])
def test_a_share_from_cache_is_a_caution(cached: int, load: dict[str, Any], told: bool, tmp_path: Path) -> None:
    if load:
        load = load | {"prime": {"set": "prompts"}}
    usage = '"usage": {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": %d}}'
    choice = '{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}'
    body = ('{"model": "m", "choices": [' + choice + "], " + usage % cached + "}").encode()
    with serving(lambda *_: reply("200 OK", body)) as server:
        made = manifest(f"http://127.0.0.1:{server.port}/v1", **load)
        endpoint = made.endpoint.model_copy(update={"stream": False})
        done = run_study(made.model_copy(update={"endpoint": endpoint}), tmp_path / "w.duckdb")
    with Warehouse.open(done.warehouse, read_only=True) as store:
        notes = caution_notes(build_report(store, done.study_id))
    assert any("80% of prompt tokens" in note for note in notes) is told
