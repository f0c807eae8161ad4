"""What a report says of the conditions its runs were made under."""

import math
from typing import Any

import pytest

from tests.report.sample import Sample
from tests.report.studies import SAMPLES
from tfbench.report.conditions import conditions


def told(loads: list[float], repeats: int = 2, **columns: Any) -> list[str]:
    sample = Sample()
    for load in loads:
        sample.add_runs(load, repeats)
    # Runs were made repeat by repeat, and the sample lists them load by load.
    order = sorted(range(len(sample.runs)), key=lambda i: (sample.runs[i]["repeat"], -i))
    for place, i in enumerate(order):
        sample.runs[i] |= {"order_index": place, "cache_state": None}
        sample.runs[i] |= {name: value(place) if callable(value) else value for name, value in columns.items()}
    return conditions(sample.data())


def test_the_order_is_told_by_repeat() -> None:
    assert told([2.0, 4.0, math.inf]) == [
        "order of loads by repeat: inf 4 2 | inf 4 2",
        "not restarted between repeats",
    ]
    long = told([float(load) for load in range(1, 20)], repeats=8)[0]
    assert long.count("|") == 6 and long.endswith("| …") and "19 18 17 16 15 14 13 12 11 10 9 8 … | 19" in long


@pytest.mark.parametrize(
    ("restart", "said"),
    [
        (lambda i: None, "not restarted between repeats"),
        (lambda i: 1 + i // 2, "3 restarts, each repeat in a fresh process"),
        (lambda i: 1 + i // 4, "2 restarts, some repeats share a process"),
        (lambda i: None if i < 2 else i, "5 restarts, some repeats share a process"),
    ],
)
def test_whether_repeats_share_a_process(restart: Any, said: str) -> None:
    assert told([2.0, 4.0], repeats=3, restart=restart)[1:] == [said]


def test_one_run_a_load_has_no_repeats_to_share_a_process() -> None:
    assert told([2.0], repeats=1) == []
    assert "restart" not in str(told([2.0], origin="simulated") + told([2.0], origin="imported:vllm"))


@pytest.mark.parametrize(
    ("state", "share", "said"),
    [
        ("cold", None, ["prefix cache cold, hits unknown"]),
        ("cold", 0.0, ["prefix cache cold, 0% of prompt tokens from it"]),
        ("warm", lambda i: 0.5 + i / 10, ["prefix cache warm, 50% to 60% of prompt tokens from it"]),
        (None, 0.25, ["prefix cache not declared, 25% of prompt tokens from it"]),
        (None, 0.0, []),
        (None, None, []),
    ],
)
def test_what_the_prefix_cache_held(state: str | None, share: Any, said: list[str]) -> None:
    assert told([2.0], origin="simulated", cache_state=state, cached_share=share) == said


def test_every_sample_has_conditions_of_one_line() -> None:
    for make in SAMPLES.values():
        assert all(line.isprintable() for line in conditions(make()))
