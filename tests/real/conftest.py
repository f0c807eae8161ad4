"""One real llama-server for all tests here."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.llama_server import start_llama_server

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    with start_llama_server(REPO / os.environ.get("REAL_VENV", ".venv-real")) as url:
        yield url
