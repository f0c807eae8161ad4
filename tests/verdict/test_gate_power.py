"""How often the gate is right, in small; `benchmarks/gate_power.py` has the whole."""

from benchmarks.gate_power import POLICY, SLOWER, cells, make_plan, verdict

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
    assert plan.repeats_low is not None and POLICY.min_repeats <= plan.repeats_low <= plan.repeats
    # chi2_5 at 80 % over that at 20 %: 7.289 / 2.343.
    assert plan.pilot == 6 and "6 pilot pairs" in plan.notes[0] and "off 3.1 times; plan from 10" in plan.notes[0]
    # This pilot is too short for TPOT: the plan is that of a longer one.
    assert plan.length_factor is None and attempts > ATTEMPTS
    assert [row.figure for row in plan.rows] == [rule.name for rule in POLICY.metrics]
