from collections.abc import Sequence

import pytest

from tests.report.sample import Sample
from tfbench.report.judged import chosen_runs, withheld_at
from tfbench.report.model import Figure, LoadPoint, ReportData, Run

LOAD = LoadPoint(4.0)


def study(validity: Sequence[str], stability: Sequence[str]) -> ReportData:
    sample = Sample()
    sample.add_runs(4.0, len(validity), validity=lambda r: validity[r], stability=lambda r: stability[r])
    for name, unit in (("ttft_p95_ms", "ms"), ("client_lag_p99_ms", "ms"), ("good_fraction", "1")):
        sample.add_figure(4.0, name, unit, 0.5)
    return sample.data()


def get(data: ReportData, name: str) -> Figure:
    figure = data.figure(LOAD, name)
    assert figure is not None
    return figure


def test_most_runs_unstable_withholds_quantiles_and_nothing_else() -> None:
    data = study(["VALID"] * 3, ["unstable", "unstable", "stable"])
    latency = get(data, "ttft_p95_ms")
    assert latency.empty
    assert not latency.settled
    assert "withheld" in (latency.reason or "")
    assert "2 of 3" in (latency.reason or "")
    for name in ("client_lag_p99_ms", "good_fraction"):
        assert get(data, name).settled
        assert get(data, name).value == 0.5


def test_a_few_unstable_runs_leave_quantiles_unsettled() -> None:
    latency = get(study(["VALID"] * 3, ["unstable", "stable", "stable"]), "ttft_p95_ms")
    assert latency.value == 0.5
    assert not latency.settled
    assert latency.reason == "unstable in 1 of 3 runs"


def test_where_every_run_is_invalid_nothing_is_settled() -> None:
    for name in ("ttft_p95_ms", "good_fraction"):
        figure = get(study(["INVALID"] * 2, ["stable"] * 2), name)
        assert figure.value == 0.5
        assert not figure.settled
        assert "no evidence" in (figure.reason or "")


@pytest.mark.parametrize(
    ("validity", "kept"), [(["VALID", "INVALID", "VALID"], [0, 2]), (["INVALID"] * 2, [0, 1]), (["VALID"], [0])]
)
def test_invalid_runs_are_left_out_while_others_stand(validity: list[str], kept: list[int]) -> None:
    runs: tuple[Run, ...] = study(validity, ["stable"] * len(validity)).runs
    assert [run.repeat for run in chosen_runs(runs)] == kept


def test_instability_of_invalid_runs_withholds_nothing() -> None:
    assert not withheld_at(study(["VALID", "INVALID", "INVALID"], ["stable", "unstable", "unstable"]).runs)
    assert not withheld_at(())
