"""Before any load: is the endpoint what the manifest says? What is found goes to `runs.observed`."""

import json
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import httpx
import orjson

from tfbench.core.errors import EndpointError
from tfbench.core.jsonio import dump_text
from tfbench.core.kinds import Outcome, Phase, Role
from tfbench.core.redact import Redactor
from tfbench.engine.misbehave import MISBEHAVE_HEADER, SPARED
from tfbench.load.target import control_url, tls_context, unix_path
from tfbench.manifest import Manifest, adapter
from tfbench.protocol import DIALECTS, SseParser, error_message, one_line
from tfbench.study.record import sampling_of

_PROBE_TOKENS = 2
_MOST_BYTES = 4 << 20
T = TypeVar("T")
_ID_HEADER = "x-request-id"
_OWN_ADAPTER = "tfbench"


@dataclass(frozen=True)
class Probe:
    """What was found (`runs.observed`), and the probe's own row of `attempts` (without run and host)."""

    observed: dict[str, Any]
    attempt: dict[str, Any]


def _say(url: str, trouble: str, mend: str) -> EndpointError:
    return EndpointError(f"{url}: {trouble}; {mend}")


@dataclass(frozen=True)
class Answer:
    """A response as far as it was read."""

    status_code: int
    headers: httpx.Headers
    content: bytes

    @property
    def encoding(self) -> str:
        """Its Content-Encoding; "" for none."""
        return str(self.headers.get("content-encoding", "")).strip().lower().replace("identity", "")

    def error_message(self) -> str:
        """What it says, as one that isn't 2xx."""
        return error_message(self.status_code, self.content, self.encoding)


def within(total_s: float, ask: Callable[[], T]) -> T:
    """What `ask` gives or raises; TimeoutError when it takes longer. A server that drips bytes can hold any read up."""
    results: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue()

    def run() -> None:
        try:
            results.put((ask(), None))
        except (httpx.HTTPError, EndpointError, OSError) as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        value, error = results.get(timeout=total_s)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return cast(T, value)


def post(client: httpx.Client, url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Send a request and read its answer up to its end, its end mark, or silence after a beginning."""
    content = b""
    with client.stream("POST", url, content=body, headers=headers) as response:
        try:
            for part in response.iter_raw():
                content += part
                if content.rstrip().endswith(b"[DONE]") or len(content) > _MOST_BYTES:
                    break
        except httpx.ReadTimeout:
            if not content:
                raise
        return Answer(response.status_code, response.headers, content)


def _get_json(client: httpx.Client, url: str, headers: dict[str, str]) -> Any:
    try:
        response = client.get(url, headers=headers)
    except httpx.HTTPError:
        return None
    if response.status_code != 200:
        return None
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return None


def _listed_models(document: Any) -> list[str]:
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list):
        return []
    names = [str(entry["id"]) for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    for entry in data:
        aliases = entry.get("aliases") if isinstance(entry, dict) else None
        names.extend(str(alias) for alias in aliases if alias not in names) if isinstance(aliases, list) else None
    return names


def _shown(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:5]) + (", …" if len(names) > 5 else "")


def _looks_like_html(response: Answer) -> bool:
    kind = response.headers.get("content-type", "").lower()
    return "html" in kind or response.content.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))


def _check_status(url: str, response: Answer, model: str, listed: list[str]) -> None:
    status = response.status_code
    if 200 <= status < 300:
        return
    says = response.error_message()
    if status in (401, 403):
        raise _say(url, f"the server refuses us ({says})", "set endpoint.headers.Authorization, e.g. env:API_KEY")
    if listed and model not in listed:
        raise _say(
            url, f"the server lacks model {model!r} ({says})", f"set model.name to one it lists: {_shown(listed)}"
        )
    if status == 404 and "model" in says.lower():
        raise _say(url, f"the server lacks model {model!r} ({says})", "set model.name to one it serves")
    if status in (301, 302, 307, 308):
        raise _say(url, f"redirected to {response.headers.get('location', '?')}", "give the final URL as endpoint.url")
    if _looks_like_html(response) or status == 404:
        raise _say(
            url,
            f"no OpenAI-style API there ({says})",
            "check endpoint.url: it is the base that ends in /v1 for most servers",
        )
    raise _say(url, f"a probe request failed ({says})", "try it by hand, then run again")


def probe_endpoint(
    base_url: str,
    *,
    headers: dict[str, str],
    model: str,
    dialect: str,
    stream: bool,
    include_usage: bool,
    sampling: dict[str, Any],
    connect_s: float,
    timeout_s: float,
    total_s: float,
) -> Probe:
    """Ask the endpoint for its models and send one tiny request of the manifest's own shape.

    `connect_s` and `timeout_s` (between two reads) limit each step, `total_s` the whole. Raises EndpointError
    in one line: unreachable, HTML, refused, model lacking, an error to a request that the load would repeat.
    """
    base = base_url.rstrip("/")
    speak = DIALECTS[dialect]
    url = base + speak.path
    body = speak.encode(
        "Say hello.",
        model=model,
        max_tokens=_PROBE_TOKENS,
        stream=stream,
        include_usage=include_usage,
        sampling=sampling,
    )
    request_id = control_id()
    send = {**headers, "Content-Type": "application/json", "X-Request-Id": request_id, "Accept-Encoding": "identity"}
    timeout = httpx.Timeout(timeout_s, connect=connect_s)
    socket_path = unix_path(base)

    def ask() -> tuple[list[str], int, Answer]:
        transport = httpx.HTTPTransport(uds=socket_path, verify=tls_context())
        with httpx.Client(timeout=timeout, trust_env=False, transport=transport) as client:
            listed = _listed_models(_get_json(client, control_url(base) + "/models", headers))
            return listed, time.time_ns(), post(client, control_url(url), body, send)

    try:
        listed, sent_ns, response = within(total_s, ask)
    except httpx.ConnectError as error:
        raise _say(base, f"can't connect ({error})", "is the server running, and is endpoint.url right?") from error
    except (httpx.TimeoutException, TimeoutError) as error:
        waited = total_s if isinstance(error, TimeoutError) else timeout_s
        raise _say(
            url, f"no answer to a probe within {waited:g} s", "is the server still loading the model?"
        ) from error
    except httpx.HTTPError as error:
        raise _say(url, f"a probe request failed ({error})", "does the server speak HTTP/1.1 there?") from error
    _check_status(url, response, model, listed)
    if _looks_like_html(response):
        raise _say(
            url,
            "it answers with an HTML page, not an OpenAI-style API",
            "check endpoint.url: it is the base that ends in /v1 for most servers",
        )
    found = read_answer(response, dialect)
    if found["error"] is not None:
        raise _say(url, f"a probe was answered with an error ({found['error']})", "try it by hand, then run again")
    answered_as = found["model"]
    if listed and model not in listed:
        raise _say(
            url,
            f"the server lacks model {model!r} (it answered as {answered_as!r})",
            f"set model.name to one it lists: {_shown(listed)}",
        )
    end_ns = time.time_ns()
    observed = {
        "models": listed[:20],
        "answered_as": answered_as,
        "server": response.headers.get("server"),
        "usage": found["usage"] is not None and found["usage"].output_tokens is not None,
        "id_echo": _echo(response, request_id),
        "streamed": found["streamed"],
    }
    row = attempt_row(Role.PROBE, 0, request_id, sent_ns, end_ns, response.status_code, found)
    return Probe(observed, row)


def ask(
    manifest: Manifest, url: str, headers: Mapping[str, str], redactor: Redactor, *, limit_s: float = math.inf
) -> Probe:
    """`probe_endpoint` with a frozen manifest's own request, within `limit_s` seconds.

    Neither findings nor errors hold a secret, which a server may echo.
    """
    endpoint = manifest.endpoint
    waits = endpoint.timeouts
    # Misbehaviour is asked for of the load: the probe is to find out what the endpoint is.
    send = {name: value for name, value in headers.items() if name.lower() != MISBEHAVE_HEADER.lower()}
    if endpoint.adapter == _OWN_ADAPTER:
        send[MISBEHAVE_HEADER] = SPARED
    try:
        probe = probe_endpoint(
            url,
            headers=send,
            model=manifest.model.name,
            dialect=str(endpoint.dialect),
            stream=endpoint.stream,
            include_usage=adapter(endpoint.adapter).include_usage,
            sampling=sampling_of(manifest),
            connect_s=min(waits.connect_s, limit_s),
            timeout_s=min(waits.first_byte_s, limit_s),
            total_s=min(waits.total_s, limit_s),
        )
    except EndpointError as error:
        raise EndpointError(redactor.text(str(error))) from None
    return Probe(json.loads(redactor.text(dump_text(probe.observed))), probe.attempt)


def control_id() -> str:
    """A request id that no load request has."""
    return f"00000000-0000-8000-8000-{time.time_ns() & 0xFFFFFFFFFFFF:012x}"


def attempt_row(
    role: Role, number: int, request_id: str, sent_ns: int, end_ns: int, status: int, found: dict[str, Any]
) -> dict[str, Any]:
    """A row of the ledger for the `number`-th request beside a run's load (without run and host).

    It was served, so tokens must add up with it, but it was never scheduled.
    """
    usage = found["usage"]
    return {
        "attempt_id": -1 - number,
        "request_id": request_id,
        "task_id": f"{role.value}-{number}" if number else role.value,
        "try": None,
        "role": role.value,
        "phase": Phase.WARMUP.value,
        "stamp_source": "user",
        "scheduled_ns": sent_ns,
        "dispatched_ns": sent_ns,
        "sent_ns": sent_ns,
        "end_ns": end_ns,
        "outcome": Outcome.OK.value,
        "http_status": status,
        "finish_reason": found["finish_reason"],
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "reasoning_tokens": usage.reasoning_tokens if usage else None,
        "token_source": "usage" if usage and usage.output_tokens is not None else None,
    }


def _echo(response: Answer, request_id: str) -> str | None:
    if response.headers.get(_ID_HEADER) == request_id:
        return "header"
    return "body" if request_id.encode() in response.content else None


def read_answer(response: Answer, dialect: str) -> dict[str, Any]:
    """What an answer holds: error (None where it is well), model, usage, finish_reason, streamed."""
    speak = DIALECTS[dialect]
    if response.encoding:
        error = one_line(f"body came encoded as {response.encoding!r}, which was not asked for")
        return {"error": error, "model": None, "usage": None, "finish_reason": None, "streamed": False}
    if "text/event-stream" in response.headers.get("content-type", "") or response.content.startswith(b"data:"):
        decoder = speak.stream_decoder()
        chunks = map(decoder.feed, SseParser().feed(response.content + b"\n\n"))
        kinds = {chunk.kind for chunk in chunks if chunk is not None}
        usage = decoder.usage and decoder.usage.beside(kinds)
        return {
            "error": decoder.verdict(),
            "model": decoder.response_model,
            "usage": usage,
            "finish_reason": decoder.finish_reason,
            "streamed": True,
        }
    result = speak.decode_body(response.content)
    return {
        "error": result.error,
        "model": result.response_model,
        "usage": result.usage,
        "finish_reason": result.finish_reason,
        "streamed": False,
    }
