"""What the gate makes of cells and of a second round: verdicts, order, the guard."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tfbench.metrics import FIGURES, Sample
from tfbench.metrics.samples import Flags
from tfbench.report.gate_files import junit_xml, smaller_is_better
from tfbench.stats.ratio import RatioRun
from tfbench.verdict.arms import Arm, ArmRun, likeness, match_runs
from tfbench.verdict.cells import Cell
from tfbench.verdict.gate import confirming, gate_result, judge
from tfbench.verdict.gate_document import GateResult, Judged
from tfbench.verdict.gate_plan import GatePlan, plan_gate
from tfbench.verdict.policy import Policy, parse_policy

N = 400
MEDIANS = {"ttft_p50_ms": 40.0, "e2e_p50_ms": 900.0}
RELATIVE = [{"name": name, "margin": {"relative": 0.05}} for name in MEDIANS]


def policy(*metrics: Mapping[str, Any], **more: Any) -> Policy:
    return parse_policy({"metric": [*metrics] or RELATIVE, **more})


def arm(
    name: str,
    loads: Mapping[float, int],
    unstable: int = 0,
    workload: str = "w",
    rates: Sequence[float] = (5, 10),
    **run: Any,
) -> Arm:
    """So many runs at each load, the first `unstable` of them unstable."""
    runs = tuple(
        ArmRun(f"{name}-{load}-{i}", load, i, seed=i, schedule_sha256="s", unstable=i < unstable, **run)
        for load, count in loads.items()
        for i in range(count)
    )
    return Arm(name, name, None, "m", workload, "s", {"load": {"rates": list(rates)}}, {}, runs)


def sample(figure: str, seed: Sequence[int], scale: float, failed: float) -> Sample:
    rng = np.random.default_rng(seed)
    if figure == "ok_fraction":
        ok = rng.random(N) >= failed
        return Sample(float(ok.mean()), N, Flags(ok, np.where(ok, 0.1, np.inf)))
    data = MEDIANS[figure] * scale * rng.lognormal(0.0, 0.1, N)
    return Sample(float(np.median(data)), N, data)


def judged(
    rules: Policy,
    base: Arm,
    candidate: Arm,
    scales: Mapping[tuple[float, str], float] | None = None,
    *,
    failed: float = 0.0,
) -> Judged:
    """Of candidates `scales` times as slow, by load and figure; the share `failed` of their attempts fails."""
    scales = scales or {}
    matches = match_runs(base, candidate)
    cells = []
    for match in matches:
        for figure in rules.names:
            arms = []
            for side, runs in enumerate((match.base, match.candidate)):
                scale = scales.get((match.load or 0.0, figure), 1.0) if side else 1.0
                seeds = [[run.repeat, 5, side if not match.paired else 0] for run in runs]
                own = [sample(figure, seed, scale * (1 + 0.002 * side * seed[0]), failed * side) for seed in seeds]
                arms.append(tuple(own))
            cells.append(Cell(match.load, None, FIGURES[figure], FIGURES[figure].unit, match.paired, *arms))
    return judge(rules, base, candidate, matches, cells)


def result(
    rules: Policy, first: Judged, again: Judged | None = None, arms: tuple[Arm, Arm] | None = None
) -> GateResult:
    base, candidate = arms or (arm("base", {5.0: 5}), arm("candidate", {5.0: 5}))
    alike = likeness(base, candidate, match_runs(base, candidate))
    return gate_result(rules, base, candidate, alike, first, confirmation=again)


def test_a_load_that_the_candidate_has_no_run_at_is_no_pass() -> None:
    base, candidate = arm("base", {5.0: 5, 10.0: 5}), arm("candidate", {5.0: 5})
    found = judged(policy(), base, candidate)
    assert found.verdict == "INVALID" and found.reasons == ("the candidate has no run at load 10",)
    assert judged(policy(loads=[5]), base, candidate).verdict == "PASS"
    # A FAIL stays one; loads of the candidate alone are told; loads that differ on purpose were allowed to.
    assert judged(policy(), base, candidate, {(5.0, "e2e_p50_ms"): 1.3}).verdict == "FAIL"
    assert judged(policy(), candidate, base).verdict == "PASS"
    assert "only the base has load 10: left out" in result(policy(), found, arms=(base, candidate)).notes
    # Ids differ between versions, too; it is the planned loads that count.
    assert judged(policy(), base, arm("candidate", {5.0: 5}, workload="w2")).verdict == "INVALID"
    other = arm("candidate", {5.0: 5}, workload="w2", rates=[5])
    assert judged(policy(), base, other).verdict == "PASS"


def test_the_row_most_of_its_margins_away_comes_first_whatever_its_scale() -> None:
    rules = policy(
        {"name": "ttft_p50_ms", "margin": {"absolute": 1.0}},
        {"name": "e2e_p50_ms", "margin": {"relative": 0.05}},
    )
    arms = arm("base", {5.0: 5}), arm("candidate", {5.0: 5})
    # 40 ms → 60 ms is twenty margins, + 20 % four; then 40 → 42 two, + 60 % ten.
    far = judged(rules, *arms, {(5.0, "ttft_p50_ms"): 1.5, (5.0, "e2e_p50_ms"): 1.2})
    assert [row.figure for row in far.rows[:2]] == ["ttft_p50_ms", "e2e_p50_ms"]
    near = judged(rules, *arms, {(5.0, "ttft_p50_ms"): 1.05, (5.0, "e2e_p50_ms"): 1.6})
    assert [row.figure for row in near.rows[:2]] == ["e2e_p50_ms", "ttft_p50_ms"]
    assert {row.verdict for row in (*far.rows[:2], *near.rows[:2])} == {"FAIL"}


def test_a_figure_is_one_series_though_its_guard_stands_beside_it() -> None:
    rules = policy({"name": "ok_fraction", "margin": {"absolute": 0.05}}, failed_margin=0.01)
    first = judged(rules, arm("base", {5.0: 5}), arm("candidate", {5.0: 5}))
    assert len(first.rows) == 2
    assert [one["name"] for one in smaller_is_better(result(rules, first))] == ["1 − ok_fraction at load 5"]


def test_a_plan_tells_how_far_its_pilot_leaves_it_open() -> None:
    rules = policy(
        {"name": "ttft_p50_ms", "margin": {"relative": 0.05}}, {"name": "good_fraction", "margin": {"absolute": 0.01}}
    )

    def plan(pairs: int, good: int, noise: float = 0.03) -> GatePlan:
        rng = np.random.default_rng(11)
        # Of any number of pairs the mean is 0 and the standard deviation `noise`.
        draws = rng.normal(size=pairs)
        logs = noise * (draws - draws.mean()) / draws.std(ddof=1)
        times = rng.permutation(np.linspace(20.0, 100.0, 1001))
        flags = np.arange(1000) < good
        fast = tuple(Sample(60.0, 1001, times) for _ in logs)
        slow = tuple(Sample(60.0 * math.exp(log), 1001, times * math.exp(log)) for log in logs)
        fine = tuple(Sample(good / 1000, 1000, Flags(flags, np.where(flags, 0.5, 2.0))) for _ in logs)
        figures = FIGURES["ttft_p50_ms"], FIGURES["good_fraction"]
        arms = (fast, slow), (fine, fine)
        return plan_gate(
            rules,
            [Cell(5.0, None, one, one.unit, True, *arm) for one, arm in zip(figures, arms, strict=True)],
            paired=True,
        )

    five, twelve = plan(5, 1000), plan(12, 1000)
    assert five.pilot == 5 and twelve.pilot == 12 and twelve.notes == ()
    for found in (five, twelve):
        assert found.repeats_low < found.repeats_measured < found.repeats < found.repeats_high
    assert five.repeats_measured == twelve.repeats_measured and five.repeats_high > 2 * twelve.repeats_high
    # A share has no noise of its own: what leaves it open is that few bad ones were seen.
    none_bad, some_bad = five.rows[1], plan(5, 998).rows[1]
    assert none_bad.sd is None and none_bad.repeats_low == none_bad.repeats_measured <= none_bad.repeats_high
    assert some_bad.repeats_low <= some_bad.repeats_measured < some_bad.repeats_high
    # Beyond 1,000 nothing is told, but what the pilot does know is.
    loud = plan(5, 1000, noise=0.4)
    assert loud.repeats is None and loud.repeats_high is None and loud.repeats_low is not None


def test_a_plan_takes_a_rates_margin_as_a_share_of_the_base() -> None:
    rng = np.random.default_rng(4)

    def run(seed: int) -> Sample:
        good = np.ones(2000, bool)
        good[100 * seed : 100 * seed + 10] = False
        window = 200.0
        t_ns = np.sort(rng.uniform(0, window * 1e9, int(good.sum()))).astype(np.int64)
        ratio = RatioRun(0, int(window * 1e9), t_ns, np.ones(len(t_ns)), None)
        return Sample(ratio.ratio(), len(t_ns), ratio, counted=Flags(good, np.where(good, 0.5, 2.0)))

    figure = FIGURES["goodput_requests_per_s"]
    runs = tuple(run(seed) for seed in range(5))
    cell = Cell(5.0, None, figure, figure.unit, True, runs, tuple(run(seed) for seed in range(5)))

    def needed(margin: Mapping[str, float]) -> int | None:
        rules = policy({"name": figure.name, "margin": dict(margin)})
        return plan_gate(rules, [cell], paired=True).rows[0].attempts_needed

    share, mean = 0.05, 9.95
    assert needed({"relative": share}) == needed({"absolute": share * mean})
    less, more = needed({"relative": 0.1}), needed({"relative": 0.01})
    assert less is not None and more is not None and less < more


@pytest.mark.parametrize(
    ("listed", "guards"),
    [
        ({"absolute": 0.6}, 1),
        ({"absolute": 0.02}, 1),
        ({"absolute": 0.01}, 0),
        ({"absolute": 0.005}, 0),
    ],
)
def test_a_listed_ok_fraction_replaces_the_guard_only_where_it_is_as_strict(
    listed: Mapping[str, float], guards: int
) -> None:
    rules = policy({"name": "ok_fraction", "margin": dict(listed)}, failed_margin=0.01)
    found = judged(rules, arm("base", {5.0: 5}), arm("candidate", {5.0: 5}), failed=0.4)
    assert found.verdict == "FAIL"
    assert [row.guard for row in found.rows].count(True) == guards
    assert len(found.rows) == 1 + guards


def test_a_fail_stands_only_where_the_same_row_fails_again() -> None:
    arms = arm("base", {5.0: 5, 9.0: 5}), arm("candidate", {5.0: 5, 9.0: 5})
    rules = policy()
    first = judged(rules, *arms, {(5.0, "ttft_p50_ms"): 1.3})
    again = confirming(rules, first)
    same = judged(again, *arms, {(5.0, "ttft_p50_ms"): 1.3})
    assert result(rules, first, same).verdict == "FAIL"
    for other in (
        judged(again, *arms, {(9.0, "ttft_p50_ms"): 1.3}),
        judged(again, *arms, failed=0.4),
        judged(again, arms[0], arm("candidate", {5.0: 5, 9.0: 5}, unstable=5)),
    ):
        assert other.verdict == "FAIL"
        told = result(rules, first, other)
        assert told.verdict == "INCONCLUSIVE" and told.exit_code == 3
        assert told.reasons[0] == "the FAIL was not confirmed by new runs (another row failed)"
    passed = result(rules, first, judged(again, *arms))
    assert (passed.verdict, passed.reasons[0]) == ("INCONCLUSIVE", "the FAIL was not confirmed by new runs (PASS)")


def test_new_runs_that_are_invalid_neither_confirm_nor_refute() -> None:
    arms = arm("base", {5.0: 5}), arm("candidate", {5.0: 5})
    first = judged(policy(), *arms, {(5.0, "ttft_p50_ms"): 1.3})
    thin = judged(confirming(policy(), first), arms[0], arm("candidate", {5.0: 4}), {(5.0, "ttft_p50_ms"): 1.3})
    told = result(policy(), first, thin)
    assert (thin.verdict, told.verdict, told.exit_code) == ("INVALID", "INVALID", 4)
    assert told.reasons[0] == "the FAIL was not confirmed by new runs (INVALID)"
    assert "the policy asks for 5" in told.reasons[1]
    xml = junit_xml(told)
    assert 'failures="0" errors="1"' in xml and "not confirmed by new runs" in xml


def test_junit_has_no_failure_where_a_fail_did_not_come_again() -> None:
    arms = arm("base", {5.0: 5}), arm("candidate", {5.0: 5})
    first = judged(policy(), *arms, {(5.0, "ttft_p50_ms"): 1.3})
    told = result(policy(), first, judged(policy(), *arms))
    assert told.verdict == "INCONCLUSIVE" and 'failures="0"' in junit_xml(told)
    strict = policy(inconclusive="fail")
    told = result(strict, first, judged(policy(), *arms))
    assert told.exit_code == 1 and 'failures="1"' in junit_xml(told)
    assert 'failures="1"' in junit_xml(result(policy(), first, first))


def test_instability_is_counted_in_the_runs_of_its_own_arm() -> None:
    base, candidate = arm("base", {5.0: 20}, unstable=3), arm("candidate", {5.0: 5}, unstable=0)
    candidate = Arm(*("candidate", "candidate", None, "m", "w", "s", {}, {}), tuple(
        ArmRun(f"c{i}", 5.0, i, seed=100 + i, schedule_sha256="t") for i in range(5)
    ))  # fmt: skip
    found = judged(policy(), base, candidate)
    (load,) = found.loads
    assert not load.paired and (load.base_unstable, load.base_runs, load.candidate_runs) == (3, 20, 5)
    assert not any("withheld" in (row.reason or "") for row in found.rows)
    most = judged(policy(), arm("base", {5.0: 20}, unstable=11), candidate)
    assert "base is unstable in 11 of 20 runs" in (most.rows[0].reason or "")
    grown = judged(policy(), arm("base", {5.0: 20}), arm("candidate", {5.0: 5}, unstable=4))
    assert grown.verdict == "FAIL" and grown.reasons[0].endswith("unstable in 4 of 5 runs, the base in 0 of 5")
