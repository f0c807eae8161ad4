"""The engine's HTTP face: OpenAI endpoints, health, models, metrics, and what tests may fetch.

Headers, keep-alive and parsing are aiohttp's. Streamed events are handed to the transport already framed, at the end
of each step, because a coroutine switch per chunk would cost more than the chunk and blur its time.
"""

import asyncio
import dataclasses
import itertools
import re
import time
import uuid
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import ClientConnectionResetError, hdrs, web
from aiohttp.http import HttpVersion11, StreamWriter

from tfbench.engine.api import CHAT_PATH, COMPLETIONS_PATH, ApiError, Submission, bad_request, parse_submission
from tfbench.engine.delivery import Job, send_events
from tfbench.engine.faults import refusal, reset, strike
from tfbench.engine.frames import body_bytes, stream_frames
from tfbench.engine.metrics_page import render
from tfbench.engine.misbehave import MISBEHAVE_HEADER, Act, Kind
from tfbench.engine.runtime import Runtime

REQUEST_ID_HEADER = "X-Request-Id"
MAX_BODY_BYTES = 64 * 1024 * 1024
RUNTIME = web.AppKey("runtime", Runtime)
_REQUEST_ID = web.RequestKey("request_id", str)
_VALID_ID = re.compile(r"[\x21-\x7e]{1,256}")
_RECORDS_PER_WRITE = 20

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(runtime: Runtime) -> web.Application:
    """The application over a runtime; run it with `handler_cancellation=True`, or a lost client keeps its slot."""
    app = web.Application(middlewares=[_envelope], client_max_size=MAX_BODY_BYTES)
    app[RUNTIME] = runtime
    app.router.add_post(CHAT_PATH, _chat)
    app.router.add_post(COMPLETIONS_PATH, _completions)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/health", _health)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/tfbench/requests", _requests)
    app.router.add_get("/tfbench/requests/{request_id:.+}", _request_by_id)
    return app


@web.middleware
async def _envelope(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every response carries the request's id; every refusal is an OpenAI error object."""
    request_id = request.headers.get(REQUEST_ID_HEADER) or uuid.uuid4().hex
    request[_REQUEST_ID] = request_id if _VALID_ID.fullmatch(request_id) else uuid.uuid4().hex
    try:
        if request[_REQUEST_ID] != request_id:
            raise bad_request(f"{REQUEST_ID_HEADER} must be 1 to 256 printable ASCII characters without spaces.")
        response = await handler(request)
    except ApiError as error:
        response = _refusal(error, status=error.status)
    except web.HTTPException as error:
        kind = "NotFoundError" if error.status == 404 else "BadRequestError"
        refusal = ApiError(error.status, f"{error.reason}: {request.method} {request.path}", kind)
        response = _json(refusal.body(), status=error.status)
        if hdrs.ALLOW in error.headers:
            response.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
    if not response.prepared:
        response.headers[REQUEST_ID_HEADER] = request[_REQUEST_ID]
    return response


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _refusal(error: ApiError, *, status: int) -> web.Response:
    response = _json(error.body(), status=status)
    response.headers.update(error.headers)
    return response


async def _chat(request: web.Request) -> web.StreamResponse:
    return await _generate(request, chat=True)


async def _completions(request: web.Request) -> web.StreamResponse:
    return await _generate(request, chat=False)


async def _generate(request: web.Request, *, chat: bool) -> web.StreamResponse:
    runtime = request.app[RUNTIME]
    submission = parse_submission(await request.read(), runtime.config, chat=chat)
    request_id = request[_REQUEST_ID]
    response_id = ("chatcmpl-" if chat else "cmpl-") + request_id
    act = runtime.choose_act(request.headers.get(MISBEHAVE_HEADER), submission)
    if act is not None and act.refuses:
        return _refuse(request, submission, response_id, act)
    if act is not None and act.kind is Kind.NO_USAGE:
        submission = dataclasses.replace(submission, include_usage=False, continuous_usage=False)
    job = runtime.submit(submission, request_id, response_id, act)
    try:
        if act is not None and act.kind is Kind.SLOW_HEADERS:
            await asyncio.sleep(act.s or 0.0)
        if submission.stream:
            return await _stream(request, job, response_id)
        return await _whole(request, job, response_id)
    finally:
        runtime.release(job)


def _refuse(request: web.Request, submission: Submission, response_id: str, act: Act) -> web.Response:
    runtime = request.app[RUNTIME]
    if act.kind is Kind.RESET:
        runtime.refuse(submission, request[_REQUEST_ID], response_id, None, act)
        if request.transport is not None:
            reset(request.transport)
        raise ClientConnectionResetError(f"cut: {act}")
    status, error = refusal(act)
    runtime.refuse(submission, request[_REQUEST_ID], response_id, status, act)
    return _refusal(error, status=status)


def _content_type(job: Job, usual: str) -> str:
    return job.act.type if job.act is not None and job.act.type is not None else usual


async def _stream(request: web.Request, job: Job, response_id: str) -> web.StreamResponse:
    """Send the headers at once, then leave the writing to the runtime and only see to what keeps it from writing."""
    act = job.act
    headers = {
        hdrs.CONTENT_TYPE: _content_type(job, "text/event-stream; charset=utf-8"),
        hdrs.CACHE_CONTROL: "no-cache",
        REQUEST_ID_HEADER: request[_REQUEST_ID],
    }
    response = web.StreamResponse(headers=headers)
    chunked = request.version >= HttpVersion11
    if not chunked:
        response.force_close()  # the only end that a stream has there
    writer = await response.prepare(request)
    transport = request.transport
    if transport is None or not isinstance(writer, StreamWriter):
        raise ClientConnectionResetError("the client has gone")
    job.record.headers_sent_ns = time.monotonic_ns()
    writer.send_headers()
    writer.chunked = False  # what follows is framed already, its end included
    transport.set_write_buffer_limits(high=0)  # so that drain() waits until the socket took everything
    frames = stream_frames(job.record.submission, response_id, int(time.time()), chunked=chunked)
    if act is not None and act.kind is Kind.OPEN_END:
        frames = dataclasses.replace(frames, end=b"")
    job.open(frames, transport)
    while not job.broken:
        await writer.drain()
        if transport.is_closing():
            raise ClientConnectionResetError("the client has gone")
        if job.written == job.limit and act is not None and act.strikes:
            await strike(job, act)
            act = None
        elif job.complete:
            break
        elif not transport.get_write_buffer_size() and (event := job.next_event()) is not None:
            send_events([event])
        else:
            await job.wake.wait()
            job.wake.clear()
    return response


async def _whole(request: web.Request, job: Job, response_id: str) -> web.Response:
    while job.produced < job.seq.output_tokens:
        await job.wake.wait()
        job.wake.clear()
    usage = job.act is None or job.act.kind is not Kind.NO_USAGE
    body = body_bytes(
        job.record.submission, response_id, int(time.time()), usage=usage, cached_tokens=job.cached_tokens
    )
    headers = {hdrs.CONTENT_TYPE: _content_type(job, "application/json"), REQUEST_ID_HEADER: request[_REQUEST_ID]}
    response = web.Response(body=body, headers=headers)
    await response.prepare(request)
    job.record.end_ns = time.monotonic_ns()
    await response.write_eof()
    job.written = job.produced
    return response


async def _models(request: web.Request) -> web.Response:
    config = request.app[RUNTIME].config
    models = [
        {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "tfbench",
            "root": name,
            "parent": None if name == config.model else config.model,
            "max_model_len": config.context_tokens,
        }
        for name in (config.model, *config.loras)
    ]
    return _json(orjson.dumps({"object": "list", "data": models}))


async def _health(_request: web.Request) -> web.Response:
    return web.Response()


async def _metrics(request: web.Request) -> web.Response:
    runtime = request.app[RUNTIME]
    page = render(runtime.metrics, runtime.gauges(), model=runtime.config.model)
    return web.Response(body=page, headers={hdrs.CONTENT_TYPE: "text/plain; version=0.0.4; charset=utf-8"})


async def _request_by_id(request: web.Request) -> web.Response:
    records = request.app[RUNTIME].records
    request_id = request.match_info["request_id"]
    found = records.find(request_id)
    if not found:
        raise ApiError(404, f"No request with id {request_id} is kept.", "NotFoundError", "request_id")
    return _json(_opening(request) + b",".join(found) + b"]}")


async def _requests(request: web.Request) -> web.StreamResponse:
    """All kept requests, written in slices, so that reading many doesn't delay the steps of those being served."""
    text = request.query.get("since", "0")
    if not re.fullmatch(r"\d{1,19}", text):
        raise bad_request("since must be a whole number of nanoseconds on the engine's clock.", "since")
    response = web.StreamResponse(
        headers={hdrs.CONTENT_TYPE: "application/json", REQUEST_ID_HEADER: request[_REQUEST_ID]}
    )
    await response.prepare(request)
    await response.write(_opening(request))
    records = request.app[RUNTIME].records.since(int(text))
    separator = b""
    while slice_ := list(itertools.islice(records, _RECORDS_PER_WRITE)):
        await response.write(separator + b",".join(slice_))
        separator = b","
        await asyncio.sleep(0)  # a write that the socket takes at once lets nobody else run
    await response.write(b"]}")
    return response


def _opening(request: web.Request) -> bytes:
    return b'{"clock":' + orjson.dumps(request.app[RUNTIME].records.clock_facts()) + b',"requests":['
