"""The engine end to end, over sockets."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest

from tfbench.engine import EngineConfig, StepTime, runtime
from tfbench.engine.scheduler import Scheduler
from tfbench.engine.step_time import duration_ns

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def chat_body(content: str = "one two three", **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 5} | more


def deltas(events: list[Any]) -> list[str]:
    return [event["choices"][0]["delta"]["content"] for event in events[1:-1] if event["choices"]]


def test_a_stream_and_its_record_agree(serving, fast_config, parse_events, monkeypatch) -> None:
    monkeypatch.setattr(runtime, "MAX_LAG_NS", 1 << 62)

    async def scenario() -> None:
        async with serving(fast_config) as engine:
            body = chat_body(stream=True, stream_options={"include_usage": True})
            before = time.monotonic_ns()
            async with engine.session.post(CHAT, json=body, headers={"X-Request-Id": "req/1"}) as response:
                assert response.status == 200
                assert response.headers["X-Request-Id"] == "req/1"
                assert response.content_type == "text/event-stream"
                events = parse_events((await response.read()).decode())
            after = time.monotonic_ns()
            assert {event["id"] for event in events[:-1]} == {"chatcmpl-req/1"}
            assert len(deltas(events)) == 5
            assert events[-2]["usage"] == {"prompt_tokens": 3, "total_tokens": 8, "completion_tokens": 5}
            await engine.until(lambda: len(engine.runtime.records) == 1)
            answer = await engine.json("/tfbench/requests/req/1")
        (record,) = answer["requests"]
        offset = answer["clock"]["offset_ns"]
        sent = record["chunks"]["sent_ns"]
        assert record["chunks"]["kind"] == ["role", *["text"] * 5, "usage"]
        assert sent == sorted(sent)
        times = [before, record["arrival_ns"] - offset, sent[0] - offset, record["end_ns"] - offset, after]
        assert times == sorted(times)
        assert record["arrival_ns"] <= record["headers_sent_ns"] <= sent[0]
        queue, prefill, decode = record["events"]
        assert (queue["start_ns"], queue["end_ns"]) == (record["arrival_ns"], prefill["start_ns"])
        assert prefill["end_ns"] == decode["start_ns"]
        assert decode["attrs"] == {"tokens": 4, "steps": 4, "batch": [[1, 4]]}
        assert prefill["attrs"]["chunks"] == [[prefill["start_ns"], prefill["end_ns"], 3]]
        assert prefill["end_ns"] - prefill["start_ns"] >= 1_000_000
        # no chunk leaves before the step-time model has its token ready
        due = record["chunks"]["due_ns"][1:6]
        assert due == [decode["start_ns"] + i * 1_000_000 for i in range(5)]
        assert all(t >= prefill["end_ns"] + i * 1_000_000 for i, t in enumerate(sent[1:6]))

    asyncio.run(scenario())


def test_replies_are_the_same_however_they_are_asked_for(serving, fast_config, parse_events) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:

            async def ask(body: dict[str, Any], path: str = CHAT) -> list[Any]:
                async with engine.session.post(path, json=body) as response:
                    assert response.status == 200
                    return parse_events((await response.read()).decode())

            bodies = [chat_body(f"prompt {i % 3}", stream=True, max_tokens=5 + i) for i in range(9)]
            streams = await asyncio.gather(*(ask(body) for body in bodies))
            texts = ["".join(deltas(events)) for events in streams]
            assert [len(text.split()) for text in texts] == list(range(5, 14))
            for i in range(3):
                assert texts[i + 6].startswith(texts[i + 3]) and texts[i + 3].startswith(texts[i])
            assert len({text[:20] for text in texts}) == 3
            (whole,) = await ask(chat_body("prompt 0"))
            assert whole["choices"][0]["message"]["content"] == texts[0]
            assert whole["usage"] == {"prompt_tokens": 2, "total_tokens": 7, "completion_tokens": 5}
            text_body = {"prompt": "prompt 0", "max_tokens": 5}
            (plain,) = await ask(text_body, TEXT)
            pieces = await ask(text_body | {"stream": True}, TEXT)
            assert plain["choices"][0]["text"] == "".join(event["choices"][0]["text"] for event in pieces[:-1])
            assert plain["id"].startswith("cmpl-")

    asyncio.run(scenario())


def test_serving_follows_the_scheduler_exactly(serving, parse_events, monkeypatch) -> None:
    """The recorded arrivals, replayed in virtual time, give every stage time to the nanosecond."""
    monkeypatch.setattr(runtime, "MAX_LAG_NS", 1 << 62)
    model = StepTime(base_ms=0.7, prefill_token_ms=0.03, decode_seq_ms=0.1, context_token_ms=0.001)
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_waiting": 1000}
    config = EngineConfig(step_time=model, spin_us=0, **limits)

    async def scenario() -> Any:
        async with serving(config) as engine:

            async def ask(i: int) -> None:
                await asyncio.sleep(0.002 * (i % 7) * (i // 7))
                body = {"prompt": "w " * (1 + 11 * i % 70), "max_tokens": 1 + i % 6, "stream": i % 3 > 0}
                async with engine.session.post(TEXT, json=body) as response:
                    await response.read()

            await asyncio.gather(*(ask(i) for i in range(40)))
            await engine.until(lambda: len(engine.runtime.records) == 40)
            return await engine.json("/tfbench/requests")

    served = sorted(asyncio.run(scenario())["requests"], key=lambda record: record["arrival_ns"])
    scheduler = Scheduler(**limits)
    waiting = list(served)
    sequences = []
    now = 0
    while True:
        while waiting and waiting[0]["arrival_ns"] <= now:
            record = waiting.pop(0)
            sequences.append(
                scheduler.admit(len(sequences), record["prompt_tokens"], record["max_tokens"], record["arrival_ns"])
            )
        step = scheduler.plan_step(now)
        if step is not None:
            now += duration_ns(model, step.work)
            scheduler.finish_step(step, now)
        elif waiting:
            now = waiting[0]["arrival_ns"]
        else:
            break
    assert len(sequences) == 40
    for record, seq in zip(served, sequences, strict=True):
        assert [event["start_ns"] for event in record["events"]] == [
            seq.arrival_ns,
            seq.first_step_ns,
            seq.first_token_ns,
        ]
        assert record["events"][-1]["end_ns"] == seq.end_ns


def test_a_client_that_leaves_frees_its_slot(serving) -> None:
    config = EngineConfig(model="tiny", max_num_seqs=1, step_time=StepTime(5.0, 0.0, 0.0), spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            response = await engine.session.post(CHAT, json=chat_body(stream=True, max_tokens=10_000))
            await response.content.readline()
            queued = asyncio.create_task(
                engine.session.post(CHAT, json=chat_body(max_tokens=10_000), headers={"X-Request-Id": "queued"})
            )
            await engine.until(lambda: engine.runtime.scheduler.waiting == 1)
            last = asyncio.create_task(engine.session.post(CHAT, json=chat_body(max_tokens=1)))
            await engine.until(lambda: engine.runtime.scheduler.waiting == 2)
            queued.cancel()
            await engine.until(lambda: engine.runtime.scheduler.waiting == 1)
            response.close()
            async with await last as answer:
                assert answer.status == 200
            await engine.until(lambda: engine.runtime.scheduler.running == 0)
            await engine.until(lambda: len(engine.runtime.records) == 3)
            records = (await engine.json("/tfbench/requests"))["requests"]
            page = await (await engine.session.get("/metrics")).text()
        queued_facts, cut, served = records
        assert (queued_facts["request_id"], queued_facts["finish_reason"]) == ("queued", "abort")
        assert [event["stage"] for event in queued_facts["events"]] == ["queue"]
        assert cut["finish_reason"] == "abort"
        assert 0 < cut["output_tokens"] < 10_000
        assert cut["events"][-1]["attrs"]["cancelled"] is True
        assert served["finish_reason"] == "length"
        assert 'vllm:request_success_total{finished_reason="abort",engine="0",model_name="tiny"} 2.0' in page

    asyncio.run(scenario())


def test_a_slow_reader_holds_up_nobody_and_loses_nothing(serving, parse_events) -> None:
    tokens = 5_000
    config = EngineConfig(model="tiny", max_model_len=50_000, step_time=StepTime(0.0, 0.0, 0.0), spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(slow, (engine.host, engine.port))
                body = orjson.dumps(chat_body(stream=True, max_tokens=tokens, stream_options={"include_usage": True}))
                head = f"POST {CHAT} HTTP/1.0\r\nX-Request-Id: slow\r\nContent-Length: {len(body)}\r\n\r\n"
                await loop.sock_sendall(slow, head.encode() + body)
                await engine.until(lambda: engine.runtime.scheduler.running == 1)
                async with engine.session.post(CHAT, json=chat_body()) as response:
                    assert response.status == 200
                    await response.read()
                # all of it is produced and the slot is free, though the client has read nothing
                await engine.until(lambda: engine.runtime.scheduler.running == 0)
                assert len(engine.runtime.records) == 1
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                received = b""
                async with asyncio.timeout(60):
                    while piece := await loop.sock_recv(slow, 1 << 20):
                        received += piece
            await engine.until(lambda: len(engine.runtime.records) == 2)
            (record,) = (await engine.json("/tfbench/requests/slow"))["requests"]
        headers, _, text = received.decode().partition("\r\n\r\n")
        assert "chunked" not in headers.lower()
        events = parse_events(text)
        assert events[-1] == "[DONE]"
        assert len("".join(deltas(events)).split()) == tokens
        assert events[-2]["usage"]["completion_tokens"] == tokens
        assert sum(record["chunks"]["tokens"]) == tokens
        assert max(record["chunks"]["tokens"]) > 1
        assert len(deltas(events)) == record["chunks"]["kind"].count("text")

    asyncio.run(scenario())


@pytest.mark.parametrize("reset", [True, False])
def test_a_slow_reader_that_leaves_is_cut_off(serving, reset: bool) -> None:
    config = EngineConfig(model="tiny", step_time=StepTime(0.0, 0.0, 0.0), spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:
            loop = asyncio.get_running_loop()
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.setblocking(False)
                await loop.sock_connect(slow, (engine.host, engine.port))
                body = orjson.dumps(chat_body(stream=True, max_tokens=5_000))
                head = f"POST {CHAT} HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(body)}\r\n\r\n"
                await loop.sock_sendall(slow, head.encode() + body)
                await engine.until(lambda: engine.runtime.scheduler.running == 1)
                await engine.until(lambda: engine.runtime.scheduler.running == 0)
                if reset:
                    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await engine.until(lambda: len(engine.runtime.records) == 1)
            (record,) = (await engine.json("/tfbench/requests"))["requests"]
        assert record["finish_reason"] == "abort"
        assert record["output_tokens"] == 5_000 > sum(record["chunks"]["tokens"])

    asyncio.run(scenario())


def test_a_full_queue_answers_503(serving) -> None:
    config = EngineConfig(model="tiny", max_num_seqs=1, max_waiting=1, step_time=StepTime(2.0, 0.0, 0.0), spin_us=0)

    async def scenario() -> None:
        async with serving(config) as engine:

            async def ask(i: int) -> tuple[int, Any]:
                headers = {"X-Request-Id": f"burst-{i}"}
                async with engine.session.post(CHAT, json=chat_body(max_tokens=50), headers=headers) as response:
                    assert response.headers["X-Request-Id"] == f"burst-{i}"
                    return response.status, orjson.loads(await response.read())

            answers = await asyncio.gather(*(ask(i) for i in range(6)))
            assert sorted(status for status, _ in answers) == [200, 200, 503, 503, 503, 503]
            refusal = next(body for status, body in answers if status == 503)["error"]
            assert (refusal["code"], refusal["type"]) == (503, "ServiceUnavailableError")
            page = await (await engine.session.get("/metrics")).text()
            assert 'admission_rejections_total{reason="max_num_queued_reqs",engine="0",model_name="tiny"} 4.0' in page
            records = (await engine.json("/tfbench/requests"))["requests"]
            assert sorted(record["status"] for record in records) == [200, 200, 503, 503, 503, 503]
            assert all(record["events"] == [] for record in records if record["status"] == 503)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", CHAT, b"{", 400),
        ("POST", CHAT, b'{"model": "nope", "messages": [{"role": "user", "content": "x"}]}', 404),
        ("POST", CHAT, b'{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}', 400),
        ("POST", TEXT, b'{"prompt": "x", "n": 2}', 400),
        ("POST", TEXT, b'{"prompt": "x", "max_tokens": 99999}', 400),
        ("GET", CHAT, b"", 405),
        ("GET", "/v1/nothing", b"", 404),
        ("GET", "/tfbench/requests/unknown", b"", 404),
        ("GET", "/tfbench/requests?since=yesterday", b"", 400),
    ],
)
def test_refusals_are_openai_errors(serving, fast_config, method, path, content, status, capture) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine, engine.session.request(method, path, data=content) as response:
            error = orjson.loads(await response.read())["error"]
            assert (response.status, error["code"]) == (status, status)
            assert response.content_type == "application/json"
            assert response.headers["X-Request-Id"]
            _, (theirs,) = capture("vllm-cpu-error-badmodel.txt")
            assert error.keys() == theirs["error"].keys()
            assert engine.runtime.scheduler.running == engine.runtime.scheduler.waiting == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("request_id", ["two words", "x" * 257, "b\xe4d"])
def test_request_ids_that_cannot_be_echoed_are_refused(serving, fast_config, request_id: str) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            headers = {"X-Request-Id": request_id}
            async with engine.session.post(CHAT, json=chat_body(), headers=headers) as response:
                assert response.status == 400
                assert response.headers["X-Request-Id"] != request_id
                assert "X-Request-Id" in orjson.loads(await response.read())["error"]["message"]

    asyncio.run(scenario())


def test_a_body_over_the_limit_is_413(serving, fast_config, monkeypatch) -> None:
    monkeypatch.setattr("tfbench.engine.server.MAX_BODY_BYTES", 2000)

    async def scenario() -> None:
        body = chat_body("x" * 3000)
        async with serving(fast_config) as engine, engine.session.post(CHAT, json=body) as response:
            assert response.status == 413
            assert orjson.loads(await response.read())["error"]["code"] == 413

    asyncio.run(scenario())


def test_pages_of_the_server(serving, fast_config, capture: Callable[[str], tuple[int, list[Any]]]) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            async with engine.session.get("/health") as response:
                assert (response.status, await response.read()) == (200, b"")
            models = await engine.json("/v1/models")
            _, (theirs,) = capture("vllm-cpu-models.txt")
            assert models.keys() == theirs.keys()
            assert models["data"][0].keys() <= theirs["data"][0].keys()
            assert (models["data"][0]["id"], models["data"][0]["max_model_len"]) == ("tiny", 32_768)
            for _ in range(2):
                async with engine.session.post(CHAT, json=chat_body()) as response:
                    await response.read()
            async with engine.session.get("/metrics") as response:
                assert response.content_type == "text/plain"
                page = (await response.text()).splitlines()
            labels = 'engine="0",model_name="tiny"'
            assert f"vllm:prompt_tokens_total{{{labels}}} 6.0" in page
            assert f"vllm:generation_tokens_total{{{labels}}} 10.0" in page
            assert f'vllm:request_success_total{{finished_reason="length",{labels}}} 2.0' in page
            assert f"vllm:e2e_request_latency_seconds_count{{{labels}}} 2.0" in page
            assert f"vllm:time_to_first_token_seconds_count{{{labels}}} 2.0" in page

    asyncio.run(scenario())


def test_a_reused_request_id_is_kept_as_a_list_and_since_cuts_by_arrival(serving, fast_config) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            for tokens in (1, 2, 3):
                headers = {"X-Request-Id": "again"}
                async with engine.session.post(CHAT, json=chat_body(max_tokens=tokens), headers=headers) as response:
                    await response.read()
            await engine.until(lambda: len(engine.runtime.records) == 3)
            answer = await engine.json("/tfbench/requests/again")
            assert [record["output_tokens"] for record in answer["requests"]] == [1, 2, 3]
            since = answer["requests"][1]["arrival_ns"]
            later = await engine.json(f"/tfbench/requests?since={since}")
            assert later["requests"] == answer["requests"][1:]

    asyncio.run(scenario())


def test_many_records_are_read_in_slices(serving, fast_config) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:

            async def ask(i: int) -> None:
                headers = {"X-Request-Id": str(i)}
                async with engine.session.post(CHAT, json=chat_body(max_tokens=1), headers=headers) as response:
                    await response.read()

            await asyncio.gather(*(ask(i) for i in range(250)))
            await engine.until(lambda: len(engine.runtime.records) == 250)
            records = (await engine.json("/tfbench/requests"))["requests"]
            assert {record["request_id"] for record in records} == {str(i) for i in range(250)}
            assert len(records) == 250

    asyncio.run(scenario())


def test_a_connection_serves_one_request_after_another(serving, fast_config, parse_events) -> None:
    """Streams end as HTTP says, so that the connection stays usable; httpx is a second opinion on the framing."""

    async def scenario() -> None:
        async with serving(fast_config) as engine:
            limits = httpx.Limits(max_connections=1)
            base = f"http://{engine.host}:{engine.port}"
            async with httpx.AsyncClient(base_url=base, limits=limits, trust_env=False) as client:
                for i in range(5):
                    response = await client.post(CHAT, json=chat_body(stream=i % 2 == 0, max_tokens=3 + i))
                    events = parse_events(response.text)
                    text = "".join(deltas(events)) if i % 2 == 0 else events[0]["choices"][0]["message"]["content"]
                    assert len(text.split()) == 3 + i
                    assert "connection" not in response.headers

    asyncio.run(scenario())


def test_a_client_that_sends_half_a_body_and_leaves_does_no_harm(serving, fast_config) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            _, writer = await asyncio.open_connection(engine.host, engine.port)
            writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{{".encode())
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            async with engine.session.post(CHAT, json=chat_body()) as response:
                assert response.status == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"])
def test_a_stream_over_http_1_0_ends_with_its_connection(serving, fast_config, keep: bytes) -> None:
    async def scenario() -> None:
        async with serving(fast_config) as engine:
            body = orjson.dumps(chat_body(stream=True))
            head = b"POST %s HTTP/1.0\r\n%sContent-Length: %d\r\n\r\n" % (CHAT.encode(), keep, len(body))
            url = engine.session._base_url
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(head + body)
            answer = await asyncio.wait_for(reader.read(), 20)
            writer.close()
        assert answer.rstrip().endswith(b"[DONE]") and b"chunked" not in answer

    asyncio.run(scenario())
