"""The engine's HTTP face: OpenAI endpoints, health, models, metrics, and what tests may fetch.

Headers, keep-alive and parsing are aiohttp's. Streamed events are handed to the transport already framed, at the end
of each step, because a coroutine switch per chunk would cost more than the chunk and blur its time.
"""

import re
import time
import uuid
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import ClientConnectionResetError, hdrs, web
from aiohttp.http import HttpVersion11, StreamWriter

from tfbench.engine.api import CHAT_PATH, COMPLETIONS_PATH, ApiError, Submission, bad_request, parse_submission
from tfbench.engine.frames import body_bytes, stream_frames
from tfbench.engine.metrics_page import render
from tfbench.engine.runtime import Job, Runtime

REQUEST_ID_HEADER = "X-Request-Id"
MAX_BODY_BYTES = 64 * 1024 * 1024
RUNTIME = web.AppKey("runtime", Runtime)
_REQUEST_ID = web.RequestKey("request_id", str)
_VALID_ID = re.compile(r"[\x21-\x7e]{1,256}")
_RECORDS_PER_WRITE = 100

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
        response = _json(error.body(), status=error.status)
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


async def _chat(request: web.Request) -> web.StreamResponse:
    return await _generate(request, chat=True)


async def _completions(request: web.Request) -> web.StreamResponse:
    return await _generate(request, chat=False)


async def _generate(request: web.Request, *, chat: bool) -> web.StreamResponse:
    runtime = request.app[RUNTIME]
    submission = parse_submission(await request.read(), runtime.config, chat=chat)
    request_id = request[_REQUEST_ID]
    response_id = ("chatcmpl-" if chat else "cmpl-") + request_id
    job = runtime.submit(submission, request_id, response_id)
    try:
        if submission.stream:
            return await _stream(request, job, submission, response_id)
        return await _whole(request, job, submission, response_id)
    finally:
        runtime.release(job)


async def _stream(request: web.Request, job: Job, submission: Submission, response_id: str) -> web.StreamResponse:
    """Send the headers at once, then leave the writing to the runtime and only see to a client that reads slowly."""
    headers = {
        hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8",
        hdrs.CACHE_CONTROL: "no-cache",
        REQUEST_ID_HEADER: request[_REQUEST_ID],
    }
    response = web.StreamResponse(headers=headers)
    writer = await response.prepare(request)
    transport = request.transport
    if transport is None or not isinstance(writer, StreamWriter):
        raise ClientConnectionResetError("the client has gone")
    job.record.headers_sent_ns = time.monotonic_ns()
    writer.send_headers()
    writer.chunked = False  # what follows is framed already, its end included
    transport.set_write_buffer_limits(high=0)  # so that drain() waits until the socket took everything
    chunked = request.version >= HttpVersion11
    job.frames = stream_frames(submission, response_id, int(time.time()), chunked=chunked)
    job.transport = transport
    while not job.complete:
        await writer.drain()
        if transport.is_closing():
            raise ClientConnectionResetError("the client has gone")
        if job.seq.generated > job.written and not transport.get_write_buffer_size():
            job.write()
            continue
        await job.wake.wait()
        job.wake.clear()
    return response


async def _whole(request: web.Request, job: Job, submission: Submission, response_id: str) -> web.Response:
    await job.wake.wait()
    response = _json(body_bytes(submission, response_id, int(time.time())))
    response.headers[REQUEST_ID_HEADER] = request[_REQUEST_ID]
    await response.prepare(request)
    job.record.end_ns = time.monotonic_ns()
    await response.write_eof()
    job.written = job.seq.generated
    return response


async def _models(request: web.Request) -> web.Response:
    config = request.app[RUNTIME].config
    model = {
        "id": config.model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "tfbench",
        "root": config.model,
        "parent": None,
        "max_model_len": config.max_model_len,
    }
    return _json(orjson.dumps({"object": "list", "data": [model]}))


async def _health(_request: web.Request) -> web.Response:
    return web.Response()


async def _metrics(request: web.Request) -> web.Response:
    runtime = request.app[RUNTIME]
    scheduler = runtime.scheduler
    page = render(runtime.metrics, model=runtime.config.model, running=scheduler.running, waiting=scheduler.waiting)
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
    slice_: list[bytes] = []
    separator = b""
    for record in request.app[RUNTIME].records.since(int(text)):
        slice_.append(record)
        if len(slice_) == _RECORDS_PER_WRITE:
            await response.write(separator + b",".join(slice_))
            separator = b","
            slice_.clear()
    if slice_:
        await response.write(separator + b",".join(slice_))
    await response.write(b"]}")
    return response


def _opening(request: web.Request) -> bytes:
    return b'{"clock":' + orjson.dumps(request.app[RUNTIME].records.clock_facts()) + b',"requests":['
