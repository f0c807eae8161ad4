"""The shipped engine profiles, and what a broken one says."""

from pathlib import Path

import pytest

from tfbench.core.errors import ManifestError
from tfbench.core.kinds import Outcome
from tfbench.engine.metrics_page import Gauges, Metrics, render
from tfbench.manifest import adapter, adapter_names, freeze, parse_manifest
from tfbench.manifest.adapters import read_adapter


def test_shipped_adapters() -> None:
    assert adapter_names() == ("llama-server", "openai", "sglang", "tfbench", "vllm")
    for name in adapter_names():
        profile = adapter(name)
        assert profile.name == name
        assert profile.dialect in ("openai_chat", "openai_completions")
        assert set(profile.bad) | set(profile.excluded) == set(Outcome) - {Outcome.OK}
        assert (profile.metrics_path is None) == (not profile.metric_map)


def test_facts_that_were_seen_on_real_servers() -> None:
    assert adapter("vllm").id_echo == "id"
    assert adapter("tfbench").id_echo == "header"
    assert adapter("llama-server").id_echo is None
    assert adapter("llama-server").metric_map["output_tokens"] == "llamacpp:tokens_predicted_total"
    assert adapter("openai").ignore_eos is False
    assert all(adapter(name).ignore_eos for name in ("vllm", "llama-server", "tfbench"))


def test_all_that_is_mapped_of_the_reference_engine_is_on_its_page_and_all_of_vllms_names_there_are_mapped() -> None:
    page = render(Metrics(), Gauges(energy_j=1.0), model="m").decode()
    shown = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}
    ours, theirs = adapter("tfbench").metric_map, adapter("vllm").metric_map
    assert set(ours.values()) <= shown
    assert ours == {name: series for name, series in theirs.items() if series in shown}


def test_unknown_adapter_names_the_nearest() -> None:
    with pytest.raises(ManifestError, match=r'no adapter "llama_server"; did you mean "llama-server"\? there are: '):
        adapter("llama_server")
    with pytest.raises(ManifestError, match=r"no adapter \"\.\./adapters/vllm\""):
        adapter("../adapters/vllm")


def test_broken_adapter_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    for text, expected in {
        "title = ": "Invalid value",
        "title = 'x'": "dialect: Field required",
        "title='x'\ndialect='openai_chat'\ninclude_usage=true\nignore_eos=true\n[metrics]\nrunning='a'": "metrics_path",
        "title='x'\ndialect='openai_chat'\ninclude_usage=true\nignore_eos=true\nmetrics_path='/m'\n[metrics]\nx='a'": (
            "metrics.x"
        ),
    }.items():
        path.write_text(text)
        with pytest.raises(ManifestError) as caught:
            read_adapter.__wrapped__(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert expected in str(caught.value)
        assert str(caught.value).endswith("; mend the adapter file")


def test_accounting_of_the_adapter_serves_where_the_manifest_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from tfbench.manifest import freezing

    own = dataclasses.replace(
        adapter("openai"),
        bad=tuple(o for o in Outcome if o not in (Outcome.OK, Outcome.CANCELLED, Outcome.REJECTED)),
        excluded=(Outcome.CANCELLED, Outcome.REJECTED),
    )
    monkeypatch.setattr(freezing, "adapter", lambda name: own)
    plain = freeze(parse_manifest({"model": {"name": "m"}, "accounting": {"unit": "task"}}, "a"))
    assert plain.document["accounting"]["excluded"] == ["cancelled", "rejected"]
    assert plain.document["accounting"]["unit"] == "task"
    written = {"excluded": ["cancelled"]}
    kept = freeze(parse_manifest({"model": {"name": "m"}, "accounting": written}, "a"))
    assert kept.document["accounting"]["excluded"] == ["cancelled"]
