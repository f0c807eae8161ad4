"""`tfbench engine serve`: what it refuses, and that its page tells every setting and endpoint."""

import json
import re
import shlex
import socket
from pathlib import Path

import pytest
from aiohttp import web

from tfbench.cli.engine import serve
from tfbench.core.errors import EndpointError, UsageError
from tfbench.engine.config import EngineConfig, config_from_json, config_to_json
from tfbench.engine.profile import engine_profile
from tfbench.engine.runtime import Runtime
from tfbench.engine.server import make_app
from tfbench.manifest import load_manifest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
SETTINGS = PAGE.split("## Settings")[1].split("\n## ")[0]


@pytest.fixture(autouse=True)
def _no_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    # It would be this process's own, for all tests to come.
    monkeypatch.setattr("tfbench.core.precedence.take_precedence", lambda: "none")


@pytest.mark.parametrize("model", ["", "  "])
def test_a_model_without_a_name(model: str) -> None:
    with pytest.raises(UsageError, match="model: expected a name"):
        serve(port=0, model=model)


@pytest.mark.parametrize("port", [99_999, -1])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(UsageError, match=f"port: expected 0 to 65535, got {port}"):
        serve(port=port)


def test_a_host_without_a_name() -> None:
    with pytest.raises(UsageError, match="engine host: expected an address"):
        serve(port=0, host="")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EndpointError, match=f"can't listen on 127.0.0.1:{port}: .*in use") as told:
            serve(port=port)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not JSON"), ("[]", "JSON object"), ('{"max_num_seq": 1}', "no such setting"), ("\xff", "can't read")],
)
def test_bad_settings_name_the_file(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=rf"engine\.json: .*{says}"):
        serve(port=0, config=path)
    with pytest.raises(UsageError, match=r"none\.json: can't read"):
        serve(port=0, config=tmp_path / "none.json")


def test_a_profile_gives_the_settings_and_bad_ones_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='no profile "h100"; .*reference'):
        serve(port=0, profile="h100")
    path = tmp_path / "engine.toml"
    path.write_text("[engine]\nmax_num_seq = 1\n")
    with pytest.raises(UsageError, match=r"engine\.toml: engine max_num_seq: no such setting"):
        serve(port=0, profile=str(path))
    with pytest.raises(UsageError, match="--config, --profile: both"):
        serve(port=0, profile="reference", config=path)
    with pytest.raises(UsageError, match="port: expected 0 to 65535"):
        serve(port=-1, profile="reference")


@pytest.mark.parametrize(
    ("profile", "model", "tail"),
    [
        (None, None, ""),
        ("h100-llama-3.1-8b", None, " --set model.name=llama-3.1-8b"),
        (None, "a b", " --set 'model.name=a b'"),
    ],
)
def test_it_says_how_to_measure_it(
    profile: str | None,
    model: str | None,
    tail: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = "http://127.0.0.1:8000/v1"
    monkeypatch.setattr("tfbench.core.precedence.take_precedence", lambda: None)
    monkeypatch.setattr("tfbench.engine.main.run_server", lambda *_, on_ready, **__: on_ready(url))
    serve(profile=profile, model=model)
    assert capsys.readouterr().err == f"try: tfbench run manifests/quickstart.toml --url {url}{tail}\n"
    words = shlex.split(tail)
    overrides = words[1:]
    served = EngineConfig() if profile is None else engine_profile(profile)
    manifest = load_manifest(ROOT / "manifests" / "quickstart.toml", overrides)
    assert manifest.model.name == (model or served.model)


def test_the_page_lists_every_setting_with_its_default() -> None:
    flat = {}
    for name, value in json.loads(config_to_json(EngineConfig())).items():
        nested = {f"{name}.{field}": inner for field, inner in value.items()} if isinstance(value, dict) else None
        flat |= {name: value} if nested is None else nested
    listed = dict(re.findall(r"^\| `([a-z_.]+)` \| `([^`]+)` \|", SETTINGS, re.MULTILINE))
    assert {name: json.loads(default) for name, default in listed.items()} == flat


def test_the_page_lists_every_endpoint() -> None:
    table = PAGE.split("## Endpoints")[1].split("## ")[0]
    listed = {(method, path) for method, path in re.findall(r"`(GET|POST) (/[^`?]*)", table)}
    assert listed == routes()


def routes() -> set[tuple[str, str]]:
    import asyncio

    async def served() -> set[tuple[str, str]]:
        runtime = Runtime(EngineConfig(), asyncio.get_running_loop())
        try:
            app: web.Application = make_app(runtime)
        finally:
            runtime.close()
        return {
            (route.method, re.sub(r":[^}]*", "", route.resource.canonical))
            for route in app.router.routes()
            if route.resource is not None and route.method != "HEAD"
        }

    return asyncio.run(served())


def test_the_pages_example_is_taken() -> None:
    [example] = re.findall(r"```json\n(.*?)```", SETTINGS, re.DOTALL)
    assert config_from_json(example).max_num_seqs == 8
