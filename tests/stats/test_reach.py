"""What is said beforehand of how near a search comes."""

import math

import pytest

from tfbench.stats.reach import expected_reach, longer_for


def test_longer_runs_and_easier_targets_come_nearer_down_to_the_resolution() -> None:
    def width(requests: int, target: float = 0.9, max_runs: int = 60) -> float:
        return expected_reach(requests, target, max_runs=max_runs, resolution=1.1).width

    assert width(250) > width(1000) > width(4000) >= 1.1
    assert width(10**7) == pytest.approx(1.1)
    assert width(1000, 0.99) > width(1000, 0.9)
    assert width(1000, max_runs=12) > width(1000, max_runs=30)


def test_what_to_change_follows_from_what_keeps_the_ends_apart() -> None:
    short = expected_reach(250, 0.9, max_runs=60, resolution=1.1)
    assert short.longer > 4.0
    longer = expected_reach(math.ceil(250 * short.longer), 0.9, max_runs=60, resolution=1.1)
    assert longer.longer == pytest.approx(1.0, abs=0.01) and longer.width == pytest.approx(1.1)
    assert longer_for(1.1**2, 1.1) == pytest.approx(4 * longer_for(1.1, 1.1)) and longer_for(1.01, 1.1) == 1.0


def test_nonsense_is_refused() -> None:
    for requests, target, max_runs in ((0, 0.9, 60), (10, 1.0, 60), (10, 0.9, 0)):
        with pytest.raises(ValueError):
            expected_reach(requests, target, max_runs=max_runs, resolution=1.1)
