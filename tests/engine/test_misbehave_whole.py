"""Misbehaviour of replies that don't stream, and of those that a share spares."""

import asyncio
import time
from typing import Any

import pytest

from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.misbehave import MISBEHAVE_HEADER, Misbehaviour

TEXT = "/v1/completions"
FAST = StepTime(base_ms=1.0, prefill_token_ms=0.0, decode_seq_ms=0.0)


async def ask(engine: Any, header: str | None = None, **body: Any) -> tuple[int, str, Any]:
    """Status, content type and JSON body."""
    headers = {} if header is None else {MISBEHAVE_HEADER: header}
    async with engine.session.post(TEXT, json={"prompt": "x y", "max_tokens": 3} | body, headers=headers) as response:
        return response.status, response.content_type, await response.json(content_type=None)


def test_what_can_go_wrong_without_a_stream(serving, fast_config) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            status, _, body = await ask(engine, "no_usage")
            assert status == 200 and "usage" not in body and body["choices"][0]["finish_reason"] == "length"
            status, kind, body = await ask(engine, "content_type; type=text/x-odd")
            assert (status, kind, body["usage"]["completion_tokens"]) == (200, "text/x-odd", 3)
            start = time.monotonic()
            status, _, body = await ask(engine, "slow_headers; s=0.1")
            assert (status, body["usage"]["completion_tokens"]) == (200, 3)
            assert time.monotonic() - start >= 0.1
            status, _, body = await ask(engine, "json_error")
            assert (status, body["error"]["code"]) == (200, 500)
            records = (await engine.json("/tfbench/requests"))["requests"]
            assert [record["misbehaviour"] for record in records] == [
                "no_usage",
                "content_type; type=text/x-odd",
                "slow_headers; s=0.1",
                "json_error",
            ]

    asyncio.run(scenario())


def test_retry_after_goes_out_and_a_burst_is_over_in_time(serving, fast_config) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            headers = {MISBEHAVE_HEADER: "rate_limit; retry_after=9, burst=3"}
            async with engine.session.post(TEXT, json={"prompt": "x"}, headers=headers) as response:
                assert (response.status, response.headers["Retry-After"]) == (429, "9")
                assert (await response.json())["error"]["type"] == "RateLimitError"
            assert [(await ask(engine))[0] for _ in range(3)] == [429, 429, 200]

    asyncio.run(scenario())


@pytest.mark.parametrize("act", ["stall; s=60", "abort", "role_only", "tokens_per_chunk", "open_end", "reset; after=1"])
def test_a_share_spares_replies_that_cannot_go_wrong_so(serving, act: str) -> None:
    config = EngineConfig(step_time=FAST, misbehave=Misbehaviour({act: 1.0}), spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            status, _, body = await ask(engine)
            assert (status, body["usage"]["completion_tokens"]) == (200, 3)
            (record,) = (await engine.json("/tfbench/requests"))["requests"]
            assert record["misbehaviour"] is None
            assert set(engine.runtime.metrics.misbehaved.values()) == {0}

    asyncio.run(scenario())


def test_a_stall_frees_the_slot_once_all_is_produced(serving) -> None:
    config = EngineConfig(step_time=FAST, max_num_seqs=1, spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            headers = {MISBEHAVE_HEADER: "stall; after=1, s=60"}
            body = {"prompt": "x", "max_tokens": 5, "stream": True}
            response = await engine.session.post(TEXT, json=body, headers=headers)
            assert (await response.content.readline()).startswith(b"data: ")
            assert (await ask(engine))[0] == 200
            assert engine.runtime.scheduler.running == 0
            response.close()
            await engine.until(lambda: len(engine.runtime.records) == 2)
            records = (await engine.json("/tfbench/requests"))["requests"]
            assert [(record["output_tokens"], sum(record["chunks"]["tokens"])) for record in records] == [
                (3, 0),
                (5, 1),
            ]

    asyncio.run(scenario())
