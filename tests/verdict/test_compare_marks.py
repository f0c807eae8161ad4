"""How often `compare` marks rows, on the benchmark's own draws; `benchmarks/compare_marks.py` measures it in full."""

import pytest

from benchmarks.compare_marks import SLOWER, compared, line


@pytest.mark.parametrize("cv", [0.0, 0.02, 0.05])
def test_one_run_an_arm_marks_nothing(cv: float) -> None:
    for seed in range(10):
        rows = compared((seed, 1), 1, cv, 1.0).rows
        assert len(rows) == 12 and {row.says for row in rows} == {"undecided"}


def test_five_repeats_mark_a_real_change_and_hardly_ever_none() -> None:
    assert line(3, 10, 5, 0.02, SLOWER)["tpot_p50_worse"] == 10
    # 3 % of comparisons of equal systems were marked, so 4 of 30 come about once in a hundred.
    assert line(3, 30, 5, 0.05, 1.0)["marked"] < 4
