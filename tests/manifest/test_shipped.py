"""The manifests that ship: valid, freezable, and in step with what the README promises of them."""

from pathlib import Path

import numpy as np
import pytest

from tfbench.core.kinds import Phase
from tfbench.core.resources import data_dir
from tfbench.manifest import expand, freeze, load_manifest
from tfbench.schedule import Schedule, build_schedule

SHIPPED = sorted(data_dir("manifests").rglob("*.toml"))


def test_quickstart_and_llama_server_are_there() -> None:
    assert {"quickstart.toml", "llama-server.toml"} <= {path.name for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_manifest_freezes_and_names_no_place(path: Path) -> None:
    frozen = freeze(load_manifest(path))
    assert frozen.document["endpoint"]["url"] is None
    assert len(frozen.manifest_id) == 64


@pytest.mark.parametrize("name", ["quickstart", "llama-server"])
def test_every_run_of_the_demos_has_something_to_measure(name: str) -> None:
    manifest = freeze(load_manifest(data_dir("manifests") / f"{name}.toml")).manifest
    plans = expand(manifest)
    assert len(plans) == 15
    for plan in plans:
        schedule = build_schedule(manifest, plan)
        assert isinstance(schedule, Schedule)
        assert np.count_nonzero(schedule.phases() == Phase.MEASURE) > 0


def test_quickstart_takes_about_two_minutes() -> None:
    load = load_manifest(data_dir("manifests") / "quickstart.toml").load
    assert load.duration_s is not None
    seconds = len(load.points) * load.repeats * (load.warmup_s + load.duration_s)
    assert 90 <= seconds <= 120
