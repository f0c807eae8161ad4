"""How often the gate is right, in small; `benchmarks/gate_power.py` has the whole."""

from benchmarks.gate_power import POLICY, SLOWER, cells, make_plan, measure_power, verdict

PAIRS = 5
ATTEMPTS = 900


def test_equal_arms_pass_and_a_slower_one_fails() -> None:
    equal = [verdict(POLICY, cells([1, gate], PAIRS, ATTEMPTS), PAIRS) for gate in range(8)]
    assert "FAIL" not in equal and equal.count("PASS") >= 4
    slower = [verdict(POLICY, cells([2, gate], PAIRS, ATTEMPTS, SLOWER), PAIRS) for gate in range(4)]
    assert slower == ["FAIL"] * 4


def test_a_plan_from_a_pilot_asks_for_enough() -> None:
    plan, attempts = make_plan(1, pairs=6, n=ATTEMPTS)
    assert plan.repeats is not None and plan.repeats >= POLICY.min_repeats
    ends = (plan.repeats_low, plan.repeats_measured, plan.repeats, plan.repeats_high)
    known = [POLICY.min_repeats, *(one for one in ends if one is not None)]
    assert len(known) == 5 and known == sorted(known)
    # chi2_5 at 2.5 % is 0.8312: sqrt(5 / 0.8312).
    assert plan.pilot == 6 and plan.notes == (
        "6 pilot pairs tell the noise to within a factor of 2.5: run the pilot with 10 or more pairs"
        " (load.repeats = 10) for a plan that is closer",
    )
    # This pilot is too short for TPOT: the plan is that of a longer one.
    assert plan.length_factor is None and attempts > ATTEMPTS
    assert [row.figure for row in plan.rows] == [rule.name for rule in POLICY.metrics]


def test_restarts_that_differ_cost_power_but_make_no_false_alarm() -> None:
    calm, rough = (measure_power(3, cv, [5], pairs=20, n=300)[5] for cv in (0.005, 0.15))
    assert calm["slower"]["FAIL"] == 4 and rough["slower"]["FAIL"] < 4
    assert all(found["equal"].total() == found["slower"].total() == 4 for found in (calm, rough))
    assert calm["equal"]["FAIL"] == rough["equal"]["FAIL"] == 0
