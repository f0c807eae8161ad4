"""Doing the misbehaviour that `misbehave` describes: refusals, cut connections, pauses."""

import asyncio
import socket
import struct

from aiohttp import ClientConnectionResetError

from tfbench.engine.api import ApiError
from tfbench.engine.delivery import Job
from tfbench.engine.frames import error_event
from tfbench.engine.misbehave import Act, Kind

_BROKEN = ApiError(500, "The engine misbehaves as it was asked to.", "InternalServerError")
_KINDS = {429: "RateLimitError", 503: "ServiceUnavailableError"}


def refusal(act: Act) -> tuple[int, ApiError]:
    """The HTTP status and the error of an act that refuses with a status."""
    if act.kind is Kind.JSON_ERROR:
        return 200, _BROKEN
    if act.kind is Kind.RATE_LIMIT:
        headers = {"Retry-After": str(act.retry_after)}
        return 429, ApiError(429, "Rate limit reached; the engine was asked to say so.", _KINDS[429], headers=headers)
    status = act.status or 500
    kind = _KINDS.get(status) or ("InternalServerError" if status >= 500 else "BadRequestError")
    return status, ApiError(status, _BROKEN.message, kind)


def reset(transport: asyncio.BaseTransport) -> None:
    """Cut the connection with a RST instead of a FIN."""
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.close()


async def strike(job: Job, act: Act) -> None:
    """What happens once `job` has written up to its limit. Raises ClientConnectionResetError where the line was cut."""
    assert job.transport is not None and job.frames is not None
    if act.kind is Kind.STREAM_ERROR:
        job.break_off(error_event(job.frames, _BROKEN.body()))
        return
    if act.s is not None:
        await asyncio.sleep(act.s)
    if act.kind is Kind.STALL:
        job.limit = job.seq.output_tokens
        return
    if act.kind is Kind.RESET:
        reset(job.transport)
    else:
        job.transport.close()
    raise ClientConnectionResetError(f"cut: {act}")
