"""What the engine tells of itself over HTTP: cached tokens, KV, preemptions, energy, lengths, adapters."""

import asyncio
from typing import Any

import orjson
import pytest

from tfbench.engine import EngineConfig, StepTime, config_from_json
from tfbench.engine.config import Hardware

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
FAST = StepTime(base_ms=1.0, prefill_token_ms=0.0, decode_seq_ms=0.0)
PREFIX = " ".join(f"word{i}" for i in range(40))


async def ask(engine: Any, path: str = TEXT, **body: Any) -> Any:
    """The JSON body of an answer; of a stream its usage event."""
    async with engine.session.post(path, json={"max_tokens": 2} | body) as response:
        text = (await response.read()).decode()
        assert response.status == 200, text
    if not body.get("stream"):
        return orjson.loads(text)
    events = [orjson.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    return next(event for event in events if event.get("usage"))


async def cached(engine: Any, path: str = TEXT, **body: Any) -> int:
    usage = (await ask(engine, path, **body))["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


async def metric(engine: Any, name: str) -> float:
    async with engine.session.get("/metrics") as response:
        page = await response.text()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name + "{"))


def test_usage_says_what_was_cached(serving) -> None:
    config = EngineConfig(step_time=FAST, prefix_reuse=True, block_tokens=16, loras=("poet",), spin_us=0)
    usage = {"stream": True, "stream_options": {"include_usage": True}}

    async def scenario() -> None:
        async with serving(config) as engine:
            assert await cached(engine, prompt=PREFIX + " one") == 0
            # 41 tokens have two full blocks of 16.
            assert await cached(engine, prompt=PREFIX + " two") == 32
            assert await cached(engine, prompt=PREFIX + " two", **usage) == 32
            assert await cached(engine, prompt="other " + PREFIX) == 0
            # Neither adapters nor tenants share with others, only with themselves.
            for own in ({"model": "poet"}, {"cache_salt": "a"}, {"user": "b"}, {"user": "b", "cache_salt": "a b"}):
                assert await cached(engine, prompt=PREFIX, **own) == 0
                assert await cached(engine, prompt=PREFIX, **own) == 32
            # In chat a message's author is part of it.
            said = [{"role": "system", "content": PREFIX}]
            assert await cached(engine, CHAT, messages=said) == 0
            assert await cached(engine, CHAT, messages=[*said, {"role": "user", "content": "x"}]) == 32
            assert await cached(engine, CHAT, messages=[{"role": "user", "content": PREFIX}]) == 0
            queried = 3 * 41 + 41 + 8 * 40 + 40 + 41 + 40
            assert await metric(engine, "vllm:prefix_cache_queries_total") == queried
            assert await metric(engine, "vllm:prefix_cache_hits_total") == 32 * (2 + 4 + 1)
            assert await metric(engine, "vllm:prompt_tokens_total") == queried
            records = (await engine.json("/tfbench/requests"))["requests"]
        prefills = [record["events"][1]["attrs"] for record in records[:2]]
        assert [(one["tokens"], one["cached_tokens"]) for one in prefills] == [(41, 0), (9, 32)]

    asyncio.run(scenario())


def test_without_reuse_usage_says_nothing_of_it(serving, fast_config) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            for _ in range(2):
                assert "prompt_tokens_details" not in (await ask(engine, prompt=PREFIX))["usage"]
            assert await metric(engine, "vllm:prefix_cache_queries_total") == 0

    asyncio.run(scenario())


def test_adapters_are_models_of_their_own(serving) -> None:
    config = config_from_json('{"loras": ["tiny:a", "b"], "model": "tiny", "step_time": {"base_ms": 1}}')

    async def scenario() -> None:
        async with serving(config) as engine:
            models = (await engine.json("/v1/models"))["data"]
            assert [(one["id"], one["parent"]) for one in models] == [("tiny", None), ("tiny:a", "tiny"), ("b", "tiny")]
            for name in ("tiny", "tiny:a", "b"):
                assert (await ask(engine, prompt="x", model=name))["model"] == name
            async with engine.session.post(TEXT, json={"prompt": "x", "model": "tiny:c"}) as response:
                assert response.status == 404
                assert "`tiny`, `tiny:a`, `b`" in (await response.json())["error"]["message"]

    asyncio.run(scenario())


def test_preemptions_and_kv_in_use_are_counted(serving) -> None:
    # Two requests of 16 + 32 tokens in 5 blocks of 16: one of them must give way.
    config = EngineConfig(step_time=FAST, kv_blocks=5, block_tokens=16, spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            body = {"prompt": "w " * 16, "max_tokens": 32}
            tasks = [asyncio.create_task(ask(engine, **body)) for _ in range(2)]
            await engine.until(lambda: engine.runtime.scheduler.running == 2)
            assert 0 < await metric(engine, "vllm:kv_cache_usage_perc") <= 1
            answers = await asyncio.gather(*tasks)
            assert all(answer["usage"]["completion_tokens"] == 32 for answer in answers)
            assert len({answer["choices"][0]["text"] for answer in answers}) == 1
            preempted = await metric(engine, "vllm:num_preemptions_total")
            assert preempted >= 1
            assert await metric(engine, "vllm:kv_cache_usage_perc") == 0
            assert await metric(engine, "vllm:prompt_tokens_total") == 32
            assert await metric(engine, "vllm:generation_tokens_total") == 64
            records = (await engine.json("/tfbench/requests"))["requests"]
        stages = [[event["stage"] for event in record["events"]] for record in records]
        assert sum(one.count("preempted") for one in stages) == preempted
        assert min(stages, key=len) == ["queue", "prefill", "decode"]
        assert all(
            sum(e["attrs"].get("tokens", 0) for e in r["events"] if e["stage"] == "decode") <= 31 for r in records
        )

    asyncio.run(scenario())


def test_a_stream_that_was_preempted_has_each_token_once(serving, parse_events) -> None:
    config = EngineConfig(step_time=FAST, kv_blocks=5, block_tokens=16, spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:

            async def stream() -> list[Any]:
                body = {"prompt": "w " * 16, "max_tokens": 32, "stream": True}
                async with engine.session.post(TEXT, json=body) as response:
                    return parse_events((await response.read()).decode())

            answers = await asyncio.gather(stream(), stream())
            assert engine.runtime.metrics.preemptions >= 1
        texts = {"".join(event["choices"][0]["text"] for event in events[:-1]) for events in answers}
        assert len(texts) == 1 and len(texts.pop().split()) == 32

    asyncio.run(scenario())


def test_energy_is_on_the_page_where_the_hardware_is_known(serving, fast_config) -> None:
    config = EngineConfig(hardware=Hardware("h100-sxm", "llama-3.1-8b"), spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            before = await metric(engine, "tfbench:energy_joules_total")
            await ask(engine, prompt="x", max_tokens=20)
            assert await metric(engine, "tfbench:energy_joules_total") > before >= 0
        async with serving(fast_config) as engine, engine.session.get("/metrics") as response:
            assert "energy" not in await response.text()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (EngineConfig(step_time=FAST, max_model_len=100), 100),
        (EngineConfig(step_time=FAST, kv_blocks=4, block_tokens=16), 64),
    ],
)
def test_a_request_longer_than_the_context_is_told_both_lengths(serving, config: EngineConfig, length: int) -> None:
    async def scenario() -> None:
        async with serving(config) as engine:
            for body in ({"prompt": "w " * 50, "max_tokens": 100}, {"prompt": "w " * 149, "max_tokens": 1}):
                async with engine.session.post(TEXT, json=body) as response:
                    message = (await response.json())["error"]["message"]
                    assert response.status == 400
                    assert f"length is {length} tokens" in message and "requested 150 tokens" in message
            assert (await engine.json("/v1/models"))["data"][0]["max_model_len"] == length
            assert (await ask(engine, prompt="w " * 50, max_tokens=length - 50))["usage"]["total_tokens"] == length

    asyncio.run(scenario())


def test_the_overload_status_is_the_configs(serving) -> None:
    config = EngineConfig(step_time=FAST, max_num_seqs=1, max_waiting=0, overload_status=429, spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            task = asyncio.create_task(ask(engine, prompt="x", max_tokens=500))
            await engine.until(lambda: engine.runtime.scheduler.running == 1)
            async with engine.session.post(TEXT, json={"prompt": "x"}) as response:
                error = (await response.json())["error"]
                assert (response.status, error["code"], error["type"]) == (429, 429, "RateLimitError")
            await task

    asyncio.run(scenario())


def test_gaps_between_tokens_are_counted_by_the_models_time(serving) -> None:
    config = EngineConfig(step_time=StepTime(20.0, 0.0, 0.0), spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            await ask(engine, prompt="x", max_tokens=6)
            assert await metric(engine, "vllm:inter_token_latency_seconds_count") == 5
            assert await metric(engine, "vllm:request_inference_time_seconds_count") == 1
            gaps = engine.runtime.metrics.inter_token_latency
            assert gaps.total == pytest.approx(engine.runtime.metrics.decode_time.total)
            assert gaps.total >= 5 * 0.02 - 1e-9

    asyncio.run(scenario())
