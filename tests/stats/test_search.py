"""The search's decisions, with oracles that know the limit: exact, noisy, contradictory, and a client that fails."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.capacity_search import ENGINES, cases, holds, run_search, true_limit, true_limits
from tfbench.stats.combine import combine_fraction
from tfbench.stats.interval import Interval, interval
from tfbench.stats.search import (
    LEAST,
    Answer,
    Evidence,
    Probe,
    SearchPlan,
    conclude,
    decide,
    leans,
    needed_requests,
    next_probe,
)

Oracle = Callable[[float, int], bool | None]
"""(load, runs) -> the decision."""


def searched(plan: SearchPlan, oracle: Oracle, unfit_from: float = math.inf) -> tuple[Answer, list[Probe]]:
    """The answer, and the probes on the way. From `unfit_from` on the client fails in every run."""
    known: dict[float, Evidence] = {}
    probes: list[Probe] = []
    while not isinstance(step := next_probe(plan, list(known.values())), Answer):
        probes.append(step)
        assert len(probes) <= plan.max_runs and step.runs >= 1
        assert plan.low <= step.load <= plan.high
        assert not plan.whole or step.load == int(step.load)
        before = known.get(step.load, Evidence(step.load, 0, 0, None))
        if step.load >= unfit_from:
            known[step.load] = Evidence(step.load, before.runs, before.unfit + plan.unfit_tries, None)
            continue
        runs = before.runs + step.runs
        met = oracle(step.load, runs)
        decided = met if runs >= LEAST else None
        known[step.load] = Evidence(step.load, runs, before.unfit, decided, met, None if runs >= LEAST else met)
    return step, probes


def at(limit: float) -> Oracle:
    return lambda load, _: load <= limit


def plan(start: float = 1.0, low: float = 1e-4, high: float = 1e4, **more: object) -> SearchPlan:
    return SearchPlan(start, low, high, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0.013, 0.4, 1.0, 7.3, 900.0])
def test_an_exact_oracle_is_bracketed_within_the_resolution(limit: float) -> None:
    answer, _ = searched(plan(), at(limit))
    assert answer.status == "found" and answer.limit == "server" and answer.reason is None
    assert answer.lo is not None and answer.hi is not None
    assert answer.lo <= limit <= answer.hi <= 1.1 * answer.lo * (1 + 1e-9)


@pytest.mark.parametrize("limit", [1, 2, 3, 17, 100])
def test_users_are_whole_and_the_answer_may_be_two_neighbours(limit: int) -> None:
    answer, probes = searched(plan(start=4, low=1, high=4096, whole=True), at(limit))
    assert answer.status == "found"
    assert answer.lo is not None and answer.hi is not None
    assert answer.lo <= limit < answer.hi and (answer.hi - answer.lo == 1 or answer.hi <= 1.1 * answer.lo)
    assert all(probe.load >= 1 for probe in probes)


def test_the_way_up_goes_by_factors_and_stops_at_the_first_load_not_met() -> None:
    _, probes = searched(plan(), at(5.0))
    assert [probe.load for probe in probes[:4]] == [1.0, 2.0, 4.0, 8.0]
    assert max(probe.load for probe in probes) == 8.0


def test_met_up_to_the_highest_load_is_an_open_answer() -> None:
    answer, probes = searched(plan(high=6.0), at(100.0))
    assert (answer.lo, answer.hi, answer.status, answer.limit) == (6.0, None, "open", "range")
    assert answer.reason is not None and "met up to the highest load tried, 6" in answer.reason
    assert [probe.load for probe in probes] == [1.0, 2.0, 4.0, 6.0, 6.0]


def test_not_met_even_at_the_lowest_load_is_an_open_answer() -> None:
    answer, probes = searched(plan(low=0.2), at(0.0))
    assert (answer.lo, answer.hi, answer.status, answer.limit) == (None, 0.2, "open", "range")
    assert answer.reason is not None and "not met even at the lowest load tried, 0.2" in answer.reason
    assert [probe.load for probe in probes] == [1.0, 0.5, 0.25, 0.2, 0.2]


def test_one_load_is_a_range_too() -> None:
    assert searched(plan(start=1, low=1, high=1), at(5.0))[0].lo == 1.0
    assert searched(plan(start=1, low=1, high=1), at(0.5))[0].hi == 1.0
    assert searched(plan(start=1, low=1, high=1), lambda load, runs: None)[0].status == "inconclusive"


def test_what_is_never_decided_is_inconclusive_and_overloads_nothing() -> None:
    answer, probes = searched(plan(), lambda load, runs: None)
    assert (answer.status, answer.lo, answer.hi) == ("inconclusive", None, None)
    assert answer.reason is not None and "undecided" in answer.reason
    assert max(probe.load for probe in probes) <= 4.0


def test_an_undecided_load_is_repeated_until_its_last_look_and_both_its_sides_are_tried() -> None:
    answer, probes = searched(plan(), lambda load, runs: None if 3 < load < 5 else load < 4)
    assert answer.status == "wide" and answer.lo is not None and answer.hi is not None
    assert answer.lo <= 3.01 and answer.hi >= 4.99 and answer.hi / answer.lo < 2
    assert answer.reason is not None and "undecided at" in answer.reason
    assert sum(probe.runs for probe in probes if 3 < probe.load < 5) > 8


def test_a_first_load_that_leans_to_one_side_is_left_to_that_side() -> None:
    start = [Evidence(1.0, 1, 0, None, False)]
    assert next_probe(plan(), start) == Probe(0.5, 1)
    assert next_probe(plan(), [Evidence(1.0, 1, 0, None, True)]) == Probe(2.0, 1)
    assert next_probe(plan(low=1.0), start) == Probe(1.0, 3)


def test_more_runs_decide_what_one_cannot() -> None:
    answer, probes = searched(plan(), lambda load, runs: load <= 5 if runs >= 4 or not 2 < load < 12 else None)
    assert answer.status == "found" and answer.lo is not None and answer.hi is not None
    assert answer.lo <= 5 <= answer.hi
    assert {probe.runs for probe in probes} == {1, 3, 4}
    assert not any(probe.runs == 1 for probe in probes[6:])


def test_contradicting_evidence_is_repeated_at_both_ends_and_may_mend() -> None:
    def moody(load: float, runs: int) -> bool | None:
        return (load != 2.0) if runs == 1 and load < 3 else load <= 6.0

    answer, _ = searched(plan(start=2.0), moody)
    assert answer.status == "found" and answer.lo is not None and answer.lo <= 6.0


def test_evidence_that_stays_contradictory_widens_the_answer_and_says_so() -> None:
    held = [Evidence(1, 8, 0, True), Evidence(2, 8, 0, False), Evidence(4, 8, 0, True), Evidence(8, 8, 0, False)]
    assert next_probe(plan(), held) == Probe(2, 8)
    answer = next_probe(plan(looks=(4, 8)), held)
    assert isinstance(answer, Answer)
    assert (answer.lo, answer.hi, answer.status) == (1, 8, "wide")
    assert answer.reason is not None and "met at 4 though not at 2" in answer.reason
    fresh = [Evidence(1, 1, 0, True), Evidence(2, 1, 0, False), Evidence(4, 8, 0, True), Evidence(8, 1, 0, False)]
    assert next_probe(plan(), fresh) == Probe(2, 3)


def test_a_failing_client_ends_the_way_up_and_is_never_called_the_servers_limit() -> None:
    answer, probes = searched(plan(), at(1e9), unfit_from=10.0)
    assert answer.hi is None and answer.lo is not None and answer.lo < 10 and 10 / answer.lo < 1.2
    assert (answer.status, answer.limit) == ("open", "client")
    assert answer.reason is not None and "the client, not the server" in answer.reason
    assert max(probe.load for probe in probes) <= 20


def test_a_client_that_fails_at_once_leaves_the_search_below_it() -> None:
    answer, _ = searched(plan(start=64.0, low=1.0), at(9.0), unfit_from=20.0)
    assert answer.status == "found" and answer.lo is not None and answer.hi is not None
    assert answer.lo <= 9.0 <= answer.hi
    nothing, _ = searched(plan(low=0.5), at(9.0), unfit_from=0.0)
    assert (nothing.lo, nothing.hi, nothing.status, nothing.limit) == (None, None, "inconclusive", "client")


def test_no_end_rests_on_a_single_run_where_the_budget_allows_more() -> None:
    answer, probes = searched(plan(max_runs=30), at(5.0))
    made = {load: sum(probe.runs for probe in probes if probe.load == load) for load in (answer.lo, answer.hi)}
    assert all(runs >= LEAST for runs in made.values())
    # Nor where one end stays open.
    top, probes = searched(plan(high=6.0), at(100.0))
    assert top.lo == 6.0 and [probe.load for probe in probes].count(6.0) == 2


def test_a_scouted_end_that_more_runs_contradict_is_given_up() -> None:
    """The first run at 1 falls into an outage; the limit lies at 5."""
    answer, probes = searched(plan(low=0.1), lambda load, runs: load <= 5.0 if runs > 1 else load not in (1, 8))
    assert answer.status == "found" and answer.lo is not None and answer.hi is not None
    assert answer.lo <= 5.0 <= answer.hi
    assert probes[0] == Probe(1.0, 1) and Probe(1.0, 3) in probes


def test_ends_that_lie_close_are_looked_at_again_before_they_are_the_answer() -> None:
    close = [Evidence(4.0, 4, 0, True), Evidence(4.3, 8, 0, False)]
    assert next_probe(plan(), close) == Probe(4.0, 4)
    spent = next_probe(plan(max_runs=12), close)
    assert isinstance(spent, Answer) and spent.status == "wide"
    assert spent.reason is not None and "what is said of 4 rests on 4 runs" in spent.reason
    # Fresh runs may take the decision back: the search goes on.
    assert isinstance(next_probe(plan(), [Evidence(4.0, 8, 0, None, True), close[1]]), Probe)
    done = next_probe(plan(), [Evidence(4.0, 8, 0, True), close[1]])
    assert isinstance(done, Answer) and (done.lo, done.hi, done.status) == (4.0, 4.3, "found")


def test_a_search_cut_short_says_which_end_rests_on_one_run() -> None:
    answer = conclude(plan(), [Evidence(2, 1, 0, None, True, True), Evidence(4, 4, 0, False)], "interrupted")
    assert (answer.lo, answer.hi, answer.status) == (2, 4, "wide")
    assert answer.reason == "interrupted; what is said of 2 rests on 1 run"
    # Close though they are, such ends aren't found.
    near = conclude(plan(), [Evidence(3.9, 1, 0, None, True, True), Evidence(4, 8, 0, False)], "interrupted")
    assert near.status == "wide"
    # A decided load outranks a scouted one beyond it, and a scouted one never contradicts what is decided.
    mixed = [Evidence(2, 4, 0, True), Evidence(3, 1, 0, None, True, True), Evidence(8, 1, 0, None, False, False)]
    assert (conclude(plan(), mixed, "x").lo, conclude(plan(), mixed, "x").hi) == (2, 8)
    crossed = [Evidence(2, 1, 0, None, False, False), Evidence(4, 4, 0, True)]
    assert (conclude(plan(), crossed, "x").lo, conclude(plan(), crossed, "x").hi) == (4, None)


def test_the_budget_is_kept_to_the_run() -> None:
    answer, probes = searched(plan(max_runs=5), lambda load, runs: None if 3 < load < 7 else load < 5)
    assert answer.runs == sum(probe.runs for probe in probes) == 5
    assert answer.reason is not None and "the budget of 5 runs is spent" in answer.reason


@settings(max_examples=200, deadline=None)
@given(
    decisions=st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=60),
    start=st.floats(0.01, 100),
    whole=st.booleans(),
    max_runs=st.integers(1, 40),
    unfit_from=st.sampled_from([math.inf, 3.0, 0.0]),
)
def test_any_evidence_ends_in_an_answer(
    decisions: list[bool | None], start: float, whole: bool, max_runs: int, unfit_from: float
) -> None:
    start = float(math.ceil(start)) if whole else start
    low = 1.0 if whole else start / 64
    asked = iter(decisions)
    answer, _ = searched(
        SearchPlan(start, low, start * 64, whole=whole, max_runs=max_runs), lambda *_: next(asked, None), unfit_from
    )
    assert answer.runs <= max_runs + 2
    assert answer.lo is None or answer.hi is None or answer.lo < answer.hi
    assert answer.reason or answer.status == "found"


def test_plans_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"start": 0.0},
        {"start": 2e4},
        {"low": 2.0},
        {"factor": 1.0},
        {"looks": (4, 2)},
        {"looks": (1, 4)},
        {"max_runs": 0},
    ):
        with pytest.raises(ValueError):
            plan(**wrong)  # type: ignore[arg-type]


def test_the_error_of_a_side_is_spent_over_the_looks() -> None:
    one = plan(looks=(4, 8, 16), confidence=0.9)
    assert (1 - one.level) / 2 * len(one.looks) == pytest.approx(0.05)


def share(value: float | None, lo: float | None, hi: float | None, k: int = 4) -> Interval:
    return interval(value, lo, hi, level=0.95, method="m", n=100, k=k, settled=True, reasons=("why",))


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (share(0.97, 0.95, 0.99), True),
        (share(0.97, 0.89, 0.99), None),
        (share(0.8, 0.7, 0.89), False),
        (share(1.0, 0.95, None), True),
        (share(1.0, 0.85, None), None),
        (share(0.0, None, 0.1), False),
        (share(None, None, None), None),
    ],
)
def test_bounds_decide(figure: Interval, met: bool | None) -> None:
    assert decide(figure, 0.9) is met


def test_an_undecided_share_leans_to_one_side() -> None:
    assert leans(share(0.9, 0.8, 0.95), 0.9) is True
    assert leans(share(0.89, 0.8, 0.95), 0.9) is False
    assert leans(share(None, None, None, k=0), 0.9) is None


def test_growing_backlogs_are_not_met_however_good_the_share() -> None:
    good = share(1.0, 0.97, None)
    assert decide(good, 0.9, unstable=1) is True
    assert decide(good, 0.9, unstable=2) is None
    assert decide(good, 0.9, unstable=3) is False
    # One run: chance may have made it grow, unless the target is missed too.
    assert decide(share(1.0, 0.97, None, k=1), 0.9, unstable=1) is None
    assert decide(share(0.5, 0.01, 0.99, k=1), 0.9, unstable=1) is False


@pytest.mark.parametrize("target", [0.5, 0.9, 0.99])
def test_needed_requests_are_enough_and_one_less_is_not(target: float) -> None:
    from tfbench.stats.fraction import clopper_pearson

    n = needed_requests(target, 0.99)
    assert clopper_pearson(n, n, level=0.99)[0] >= target
    assert n == 1 or clopper_pearson(n - 1, n - 1, level=0.99)[0] < target


@pytest.mark.parametrize(
    ("flags", "met"),
    [(np.zeros(200, bool), False), (np.ones(1, bool), None), (np.zeros(1, bool), None), (np.ones(0, bool), None)],
    ids=["all failed", "one good", "one bad", "nothing"],
)
def test_poor_data_decide_only_what_they_can(flags: np.ndarray, met: bool | None) -> None:
    score = np.where(flags, 0.1, np.inf)
    assert decide(combine_fraction([flags], score=[score], level=0.98), 0.9) is met


def test_conclude_tells_what_is_known_at_any_time() -> None:
    answer = conclude(plan(), [], "interrupted")
    assert (answer.lo, answer.hi, answer.status, answer.runs) == (None, None, "inconclusive", 0)
    half = conclude(plan(), [Evidence(2, 1, 0, True)], "interrupted")
    assert (half.lo, half.status, half.reason) == (2, "open", "interrupted")


def test_noisy_searches_of_a_queue_hold_the_truth() -> None:
    case = cases()["queue"]
    assert case.truth is not None
    held = 0
    for index in range(8):
        answer = run_search(case, plan(case.start, case.low, case.high, max_runs=40), np.random.default_rng([7, index]))
        held += holds(answer, [case.truth])
        assert answer.status != "found" or holds(answer, [case.truth])
    assert held >= 7


def test_searches_of_servers_with_outages_hold_the_truth() -> None:
    """Every fifth run loses a fifth of its requests: the limit that one run shows lies too high or far too low."""
    case = cases()["outages"]
    answers = [
        run_search(case, plan(case.start, case.low, case.high), np.random.default_rng([7, index])) for index in range(5)
    ]
    assert sum(holds(one, [0.647]) for one in answers) >= 4
    assert not any(one.status == "found" and not holds(one, [0.647]) for one in answers)


@pytest.mark.parametrize("name", sorted(set(cases()) - set(ENGINES)))
def test_every_queue_of_the_benchmark_fails_more_under_more_load(name: str) -> None:
    case = cases()[name]
    rng = np.random.default_rng(5)
    low, high = (np.mean([case.make(rng, load, 500).strain <= 1.0 for _ in range(20)]) for load in (0.1, 1.2))
    assert low > case.target > high


def test_the_truth_is_where_runs_on_average_miss_the_target() -> None:
    case = replace(cases()["restarts 0 %"], requests=200)
    (limit,) = true_limits(case, seed=3, runs=20)
    assert 0.65 < limit < 0.78
    assert true_limits(cases()["queue"], seed=3) == [cases()["queue"].truth]


def test_noisy_searches_of_the_engine_in_virtual_time_hold_its_true_limit() -> None:
    case = replace(cases()["chat"], requests=400, start=64.0, low=1.0, high=512.0)
    truth = true_limit(case, seed=3, requests=8_000, steps=6)
    answers = [
        run_search(case, plan(case.start, case.low, case.high, max_runs=24), np.random.default_rng([7, index]))
        for index in range(3)
    ]
    assert all((one.lo or 0.0) <= truth <= (one.hi or math.inf) for one in answers)
    assert all(one.lo is not None and one.hi is not None and one.hi / one.lo < 3 for one in answers)
