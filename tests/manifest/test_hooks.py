"""What may be done to a system between runs, and what a manifest may say of its cache."""

from typing import Any

import pytest

from tfbench.core.errors import ManifestError
from tfbench.manifest import Manifest, engine_profile_arg, freeze, parse_manifest


def manifest(**tables: Any) -> Manifest:
    return parse_manifest({"model": {"name": "m"}, **tables}, "test")


def refusal(**tables: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        manifest(**tables)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_command_is_a_list_of_words() -> None:
    hooks = manifest(load={"cache": "cold"}, hooks={"restart": ["a", "b c", ""], "flush": ["d"]}).hooks
    assert (hooks.restart, hooks.flush, hooks.serves_engine) == (("a", "b c", ""), ("d",), False)
    assert manifest(hooks={"restart": "engine"}).hooks.serves_engine
    assert manifest().hooks.restart is None


@pytest.mark.parametrize("command", ["docker restart vllm", "", [], [""], ["a\0b"], ["a", 1], [["a"]], {}, 3, True])
@pytest.mark.parametrize("hook", ["restart", "flush"])
def test_no_shell_reads_a_command(hook: str, command: Any) -> None:
    text = refusal(load={"cache": "cold"}, hooks={hook: command})
    assert f"hooks.{hook}: " in text and '["docker", "restart", "vllm"]' in text


@pytest.mark.parametrize("word", ["env:KEY", "Bearer abcdefgh", "sk-12345678", "--api-key=hunter2"])
def test_a_secret_in_a_command_is_refused_and_not_repeated(word: str) -> None:
    text = refusal(hooks={"restart": ["run", word]})
    assert "hooks.restart: holds a secret" in text and word not in text


@pytest.mark.parametrize(
    ("args", "profile"),
    [
        ([], None),
        ({}, None),
        ({"profile": "p"}, "p"),
        ({"--profile": "p"}, "p"),
        (["--profile", "p"], "p"),
        (["--profile=p=q"], "p=q"),
    ],
)
def test_a_served_engine_takes_a_profile(args: Any, profile: str | None) -> None:
    made = manifest(engine={"args": args}, hooks={"restart": "engine"})
    assert engine_profile_arg(made.engine.args) == profile


@pytest.mark.parametrize("args", [{"profile": 1}, {"port": 8000}, ["--profile"], ["--profile", "p", "-v"], ["p"]])
def test_and_nothing_else(args: Any) -> None:
    assert "engine.args: with hooks.restart" in refusal(engine={"args": args}, hooks={"restart": "engine"})


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:8000", "http://127.0.0.1", "http+unix://%2Frun%2Fs", "http://h:1/x"]
)
def test_a_served_engine_needs_a_plain_address(url: str) -> None:
    assert "endpoint.url: with hooks.restart" in refusal(endpoint={"url": url}, hooks={"restart": "engine"})
    manifest(endpoint={"url": "http://127.0.0.1:8000"}, hooks={"restart": "engine"})


def test_a_warm_cache_declares_what_warms_it() -> None:
    made = manifest(load={"cache": "warm"}, workload={"shared_prefix_tokens": 8}).load
    assert made.prime is not None and (made.prime.set, made.prime.count) == ("prefix", 1)
    prompts = {"set": "prompts", "count": 4.0}
    made = manifest(load={"cache": "warm", "prime": prompts}).load
    assert made.prime is not None and (made.prime.set, made.prime.count) == ("prompts", 4)
    assert manifest(load={"cache": "cold"}).load.prime is None
    frozen = freeze(manifest(load={"cache": "warm", "prime": prompts}))
    assert freeze(parse_manifest(frozen.document, "again")).manifest_id == frozen.manifest_id


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"load": {"cache": "warm"}}, "load.prime: has no prefix to prime"),
        ({"load": {"prime": {"count": 2}}}, "load.prime: belongs to cache"),
        ({"load": {"cache": "cold", "prime": {}}}, "load.prime: belongs to cache"),
        ({"load": {"cache": "hot"}}, "load.cache: expected"),
        ({"load": {"cache": "warm", "prime": {"set": "prompts", "count": 0}}}, "load.prime.count: must be at least 1"),
        ({"load": {"cache": "warm", "prime": {"count": 10_001}}}, "load.prime.count: must be at most 10,000"),
        ({"load": {"cache": "warm", "prime": {"set": "all"}}}, "load.prime.set: expected"),
        ({"hooks": {"flush": ["a"]}}, "hooks.flush: needs load.cache"),
        ({"hooks": {"timeout_s": 0}}, "hooks.timeout_s: must be above 0"),
        ({"hooks": {"restarts": "engine"}}, "did you mean hooks.restart?"),
    ],
)
def test_refusals_say_the_mend(tables: dict[str, Any], said: str) -> None:
    assert said in refusal(**tables)
