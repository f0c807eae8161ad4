from pathlib import Path

import pytest

from tests.cli.sides import add_sides


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `add_sides` makes; tests only read it."""
    folder = tmp_path_factory.mktemp("sides")
    add_sides(folder)
    return folder
