import asyncio
import time

import pytest

from tfbench.engine import timer as timer_module
from tfbench.engine.timer import make_timer


@pytest.mark.parametrize("platform", ["linux", "elsewhere"])
def test_it_wakes_once_and_never_early(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_module.sys, "platform", platform)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        woken: list[int] = []
        timer = make_timer(loop, lambda: woken.append(time.monotonic_ns()))
        for ahead_ns in (3_300_000, 200_000, 0, -1_000_000_000):
            at_ns = time.monotonic_ns() + ahead_ns
            timer.arm(at_ns)
            async with asyncio.timeout(10):
                while not woken:
                    await asyncio.sleep(0.001)
            # the loop's own timer may be a microsecond early by rounding
            assert woken[0] >= at_ns - (0 if platform == "linux" else 2_000)
            woken.clear()
        timer.arm(time.monotonic_ns() + 1_000_000)
        timer.arm(time.monotonic_ns() + 3_000_000)
        await asyncio.sleep(0.05)
        assert len(woken) == 1
        timer.arm(time.monotonic_ns() + 1_000_000)
        timer.close()
        await asyncio.sleep(0.01)
        assert len(woken) == 1

    asyncio.run(scenario())
