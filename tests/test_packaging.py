"""What pyproject.toml promises and what the pinned files and the tree hold agree."""

import re
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())
PINNED = ("constraints.txt", "constraints-dev.txt", "real/constraints.txt")
PIN = re.compile(r"^([a-z0-9._-]+)==\S+( ; [^\\]+)? \\$")


def wanted(requirements: list[str]) -> set[str]:
    """Normalised package names."""
    return {re.sub(r"[-_.]+", "-", re.split(r"[ <>=!~;\[]", item)[0]).lower() for item in requirements}


def pinned(file: str) -> set[str]:
    return {found[1] for line in (REPO / file).read_text().splitlines() if (found := PIN.match(line))}


def test_every_base_and_build_dependency_is_pinned() -> None:
    base = wanted(PROJECT["project"]["dependencies"]) | wanted(PROJECT["dependency-groups"]["build"])
    assert base <= pinned("constraints.txt")


def test_every_dev_dependency_is_pinned_once() -> None:
    dev = wanted(PROJECT["project"]["optional-dependencies"]["dev"])
    assert dev <= pinned("constraints.txt") | pinned("constraints-dev.txt")
    assert not pinned("constraints.txt") & pinned("constraints-dev.txt")


@pytest.mark.parametrize("file", PINNED)
def test_a_pinned_file_holds_pins_and_hashes_and_nothing_else(file: str) -> None:
    lines = (REPO / file).read_text().splitlines()
    strange = [
        line for line in lines if not PIN.match(line) and not re.match(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$", line)
    ]
    assert strange == []


def test_every_data_folder_the_code_asks_for_is_in_the_wheel() -> None:
    asked = {
        name
        for path in (REPO / "tfbench").rglob("*.py")
        for name in re.findall(r'data_dir\("(\w+)"\)', path.read_text(encoding="utf-8"))
    }
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert asked
    assert asked <= set(wheel["only-include"])
    assert {f"tfbench/_data/{name}" for name in asked} <= set(wheel["sources"].values())


def test_no_base_dependency_brings_a_training_framework() -> None:
    assert not pinned("constraints.txt") & {"torch", "transformers", "datasets", "tensorflow", "jax"}
