"""Body fields renamed, left out and added: by a manifest, an adapter and --set; what was unset stays unset."""

import dataclasses
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from tfbench.core.errors import ManifestError
from tfbench.manifest import Manifest, adapter, freeze, freezing, load_manifest, parse_manifest
from tfbench.protocol import DIALECTS
from tfbench.study.record import sampling_of

PLAIN = {"messages", "model", "max_tokens", "temperature", "stream", "stream_options"}


def made(toml: str, tmp_path: Path, *sets: str) -> Manifest:
    path = tmp_path / "m.toml"
    path.write_text(f'model = {{ name = "m" }}\n{toml}')
    return freeze(load_manifest(path, sets)).manifest


def body(manifest: Manifest, *, include_usage: bool = True) -> dict[str, Any]:
    sent: dict[str, Any] = orjson.loads(
        DIALECTS[str(manifest.endpoint.dialect)].encode(
            "hi",
            model=manifest.model.name,
            max_tokens=8,
            stream=manifest.endpoint.stream,
            include_usage=include_usage,
            sampling=sampling_of(manifest),
            fields=manifest.endpoint.fields,
        )
    )
    return sent


def test_the_default_adapter_sends_nothing_outside_the_api(tmp_path: Path) -> None:
    assert set(body(made("", tmp_path))) == PLAIN
    # vLLM knows it; false is what it does unasked.
    assert "ignore_eos" not in body(made('[endpoint]\nadapter = "vllm"\n[sampling]\nignore_eos = false', tmp_path))
    assert body(made('[endpoint]\nadapter = "vllm"', tmp_path))["ignore_eos"] is True


@pytest.mark.parametrize(
    ("toml", "sets", "gone", "come"),
    [
        ('[sampling]\ntemperature = "unset"', (), {"temperature"}, {}),
        ("", ("sampling.temperature=null",), {"temperature"}, {}),
        ("", ("sampling.temperature=unset",), {"temperature"}, {}),
        ("[sampling]\ntemperature = 0.7", ("sampling.temperature=null",), {"temperature"}, {}),
        ("[sampling]\nseed = 3", ("sampling.seed=null",), set(), {}),
        ("[endpoint]\nfields = { temperature = false }", (), {"temperature"}, {}),
        ("[endpoint.fields]\nmax_tokens = 'max_completion_tokens'", (), {"max_tokens"}, {"max_completion_tokens": 8}),
        ("", ("endpoint.fields.max_tokens=max_new_tokens",), {"max_tokens"}, {"max_new_tokens": 8}),
        ("", ("endpoint.fields.max_tokens=false",), {"max_tokens"}, {}),
        ("", ("endpoint.fields.stream_options=false",), {"stream_options"}, {}),
        ("", ("endpoint.fields.model=false", "endpoint.fields.stream=false"), {"model", "stream"}, {}),
        ("", ("sampling.extra.top_k=40",), set(), {"top_k": 40}),
        ("[sampling.extra]\na = { b = [1, 'x', true] }", (), set(), {"a": {"b": [1, "x", True]}}),
        ("[sampling]\nextra = { a = 1 }\n[endpoint]\nfields = { a = 'b' }", (), set(), {"b": 1}),
        ("[sampling.extra]\nn = 1", ("sampling.extra.n=null",), set(), {}),
        (
            "[sampling.extra.stream_options]\ncontinuous_usage_stats = true",
            (),
            set(),
            {"stream_options": {"continuous_usage_stats": True, "include_usage": True}},
        ),
    ],
)
def test_any_field(toml: str, sets: tuple[str, ...], gone: set[str], come: dict[str, Any], tmp_path: Path) -> None:
    manifest = made(toml, tmp_path, *sets)
    sent = body(manifest)
    assert set(sent) == (PLAIN - gone) | set(come)
    assert {name: sent[name] for name in come} == come
    # A frozen manifest sends the same, and has the same ids.
    again = freeze(parse_manifest(json.loads(json.dumps(freeze(manifest).document)), "frozen"))
    assert body(again.manifest) == sent
    assert again.manifest_id == freeze(manifest).manifest_id


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[endpoint.fields]\nmax_tokens = true", "endpoint.fields.max_tokens: must be another name for the field"),
        ("[endpoint.fields]\nmax_tokens = 3", "endpoint.fields.max_tokens: must be another name for the field"),
        ("[endpoint.fields]\nmax_tokens = ''", "endpoint.fields.max_tokens: must be another name for the field"),
        ("[endpoint.fields]\na = 'x'\nb = 'x'", 'endpoint.fields.a: is "x", and so is'),
        ("[sampling.extra]\ntemperature = 1", "sampling.extra.temperature: has a key of its own: set sampling.temper"),
        ("[sampling.extra]\nmax_tokens = 1", "sampling.extra.max_tokens: has a key of its own: set workload.output_"),
        ("[sampling.extra]\nx = inf", "sampling.extra.x: must be a text, a number"),
        ("[sampling.extra]\nx = 2024-05-01", "sampling.extra.x: must be a text, a number"),
        ("[sampling]\nstop = 'unset'", "sampling.stop: expected a list"),
    ],
)
def test_what_can_not_be_sent(toml: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        made(toml, tmp_path)
    assert says in str(caught.value) and str(caught.value).isprintable()


def test_a_key_that_can_not_be_unset_has_its_default_back(tmp_path: Path) -> None:
    assert made("[load]\nrepeats = 2", tmp_path, "load.repeats=null").load.repeats == 5
    assert made("[load]\nduration_s = 2", tmp_path, "load.duration_s=null", "load.count=9").load.count == 9


def test_an_adapter_renames_leaves_out_and_adds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = dataclasses.replace(
        adapter("openai"),
        connections="per_request",
        fields=MappingProxyType({"max_tokens": "n_predict", "temperature": False}),
        extra=MappingProxyType({"cache_prompt": False, "top_k": 1}),
    )
    monkeypatch.setattr(freezing, "adapter", lambda name: own)
    manifest = made("[sampling.extra]\ntop_k = 2\n[endpoint.fields]\ntemperature = 'temp'", tmp_path)
    expected = {"n_predict": 8, "temp": 0, "cache_prompt": False, "top_k": 2}
    assert {name: body(manifest).get(name) for name in expected} == expected
    assert manifest.endpoint.connections == "per_request"
    assert freeze(manifest).document["endpoint"]["connections"] == "per_request"
    assert made("[endpoint]\nconnections = 'pooled'", tmp_path).endpoint.connections == "pooled"
    # What the adapter changes must be in the document, or a manifest that says otherwise would lose it.
    pooled = freeze(made("[endpoint]\nconnections = 'pooled'", tmp_path)).document
    assert freeze(parse_manifest(pooled, "again")).manifest.endpoint.connections == "pooled"
