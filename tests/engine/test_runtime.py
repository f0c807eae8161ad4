"""How early a step's end is prepared for, learned from how it went."""

import asyncio

from tfbench.engine import EngineConfig
from tfbench.engine.runtime import Runtime

SPIN_NS = 100_000


def margin_after(late: list[bool]) -> float:
    """The margin after steps that were ready in time or late."""

    async def learn() -> float:
        runtime = Runtime(EngineConfig(spin_us=SPIN_NS / 1000), asyncio.get_running_loop())
        try:
            for one in late:
                runtime._learn(1000, 1, late=one)
            return runtime._margin_ns
        finally:
            runtime.close()

    return asyncio.run(learn())


def test_steps_that_come_late_are_woken_for_earlier_within_limits() -> None:
    assert margin_after([]) == SPIN_NS
    assert SPIN_NS < margin_after([True]) < margin_after([True, True]) < 1_000_000
    assert margin_after([True] * 100) == 1_000_000
    assert margin_after([False] * 100) == SPIN_NS


def test_one_late_step_in_two_hundred_leaves_the_margin_where_it_is() -> None:
    few = ([True] * 5 + [False] * 10) + ([True] + [False] * 200) * 20
    assert abs(margin_after(few) - margin_after(few[:15])) < 1000
    assert margin_after(few + [False] * 1000) < margin_after(few)
