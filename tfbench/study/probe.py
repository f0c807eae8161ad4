"""Before any load: is the endpoint what the manifest says? What is found goes to `runs.observed`."""

import json
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import httpx
import orjson

from tfbench.core.errors import EndpointError, NotReady
from tfbench.core.jsonio import dump_text
from tfbench.core.kinds import Outcome, Phase, Role
from tfbench.core.redact import Redactor
from tfbench.engine.misbehave import MISBEHAVE_HEADER, SPARED
from tfbench.load.target import control_url, tls_context, unix_path
from tfbench.manifest import Manifest, adapter
from tfbench.protocol import DIALECTS, SseParser, error_message, one_line
from tfbench.study.diagnose import (
    field_fix,
    lacks_model,
    misdirected,
    refused_fields,
    speaks_of_another_protocol,
    trouble,
    unready,
)
from tfbench.study.record import sampling_of

_PROBE_TOKENS = 2
_MOST_BYTES = 4 << 20
T = TypeVar("T")
_ID_HEADER = "x-request-id"
_OWN_ADAPTER = "tfbench"
_USAGE_FIELD = "stream_options"
_WATCH_S = 0.1
_MOST_LORAS = 16
_FIRST_LORA = 1 << 20
"""Numbers of the requests for LoRAs, beyond those of primes."""


@dataclass(frozen=True)
class Probe:
    """What was found (`runs.observed`), and the probe's own rows of `attempts` (without run and host)."""

    observed: dict[str, Any]
    attempts: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Answer:
    """A response as far as it was read; how soon its connection was closed, None where it wasn't or nobody looked."""

    status_code: int
    headers: httpx.Headers
    content: bytes
    end_ns: int
    closed_after_ms: float | None = None

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


def post(client: httpx.Client, url: str, body: bytes, headers: dict[str, str], *, watch_s: float = 0.0) -> Answer:
    """Send a request and read its answer up to its end, its end mark, or silence after a beginning.

    For `watch_s` more it is looked at whether the server closes the connection, which it leaves open by its headers.
    """
    content = b""
    with client.stream("POST", url, content=body, headers=headers) as response:
        # Held on to, since one that is thrown away early closes the connection.
        parts = response.iter_raw()
        try:
            for part in parts:
                content += part
                if content.rstrip().endswith(b"[DONE]") or len(content) > _MOST_BYTES:
                    break
        except httpx.ReadTimeout:
            if not content:
                raise
        end_ns = time.time_ns()
        closed_ms = _closed_after_ms(response, watch_s) if watch_s else None
        return Answer(response.status_code, response.headers, content, end_ns, closed_ms)


def _closed_after_ms(response: httpx.Response, watch_s: float) -> float | None:
    """How soon after an answer its connection is closed."""
    kept = response.http_version == "HTTP/1.1" and "close" not in response.headers.get("connection", "").lower()
    framed = "content-length" in response.headers or "transfer-encoding" in response.headers
    stream = response.extensions.get("network_stream")
    sock = stream.get_extra_info("socket") if kept and framed and stream is not None else None
    if not isinstance(sock, socket.socket):
        return None
    began = time.monotonic()
    try:
        while (left := began + watch_s - time.monotonic()) > 0:
            sock.settimeout(left)
            # What may come is the rest of the answer, after its end mark.
            if not sock.recv(1 << 16):
                return round((time.monotonic() - began) * 1e3, 1)
    except TimeoutError:
        return None
    except OSError:
        return round((time.monotonic() - began) * 1e3, 1)
    return None


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


def _shown(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:5]) + (", …" if len(names) > 5 else "")


def _looks_like_html(response: Answer) -> bool:
    kind = response.headers.get("content-type", "").lower()
    return "html" in kind or response.content.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))


def _check_status(url: str, response: Answer, request: "_Request", listed: Sequence[str]) -> None:
    status, model = response.status_code, request.model
    if 200 <= status < 300:
        return
    says = response.error_message()
    if status in (401, 403):
        raise trouble(url, f"the server refuses us ({says})", "set endpoint.headers.Authorization, e.g. env:API_KEY")
    if (later := unready(url, status, response.content)) is not None:
        raise later
    if status in (301, 302, 303, 307, 308):
        raise trouble(
            url, f"redirected to {response.headers.get('location', '?')}", "give the final URL as endpoint.url"
        )
    if (listed and model not in listed) or lacks_model(status, says, response.content):
        known = f"one it lists: {_shown(listed)}" if listed and model not in listed else "one it serves"
        raise trouble(url, f"the server lacks {request.called} {model!r} ({says})", f"set {request.key} to {known}")
    if status in (426, 505):
        raise trouble(
            url, f"the server refuses HTTP/1.1 ({says})", "give a port that takes it, or put a proxy before it"
        )
    if _looks_like_html(response) or status in (404, 405):
        raise trouble(
            url,
            f"no OpenAI-style API there ({says})",
            "check endpoint.url: it is the base that ends in /v1 for most servers",
        )
    raise trouble(url, f"a probe request failed ({says})", request.fix(status, response.content))


@dataclass(frozen=True)
class _Request:
    """A probe's body: as it is sent, and what of the manifest it comes from."""

    model: str
    fields: Mapping[str, str | Literal[False]]
    extra: Collection[str]
    body: bytes
    lora: bool = False

    @property
    def called(self) -> str:
        return "LoRA" if self.lora else "model"

    @property
    def key(self) -> str:
        return "workload.classes[].lora (and model.lora)" if self.lora else "model.name"

    def fix(self, status: int, said: bytes) -> str:
        """What to do about a refusal: the key of the field it is about, where that can be told."""
        names = refused_fields(status, said, orjson.loads(self.body))
        told = [f"{name}: {field_fix(name, self.fields, said, self.extra)}" for name in names[:3]]
        return "; ".join(told) if told else "try it by hand, then run again"


def probe_endpoint(
    base_url: str,
    *,
    headers: dict[str, str],
    model: str,
    dialect: str,
    stream: bool,
    include_usage: bool,
    usage_optional: bool = False,
    sampling: dict[str, Any],
    connect_s: float,
    timeout_s: float,
    total_s: float,
    fields: Mapping[str, str | Literal[False]] | None = None,
    extra: Collection[str] = (),
    loras: Sequence[str] = (),
) -> Probe:
    """Ask the endpoint for its models and send one tiny request of the manifest's own shape.

    Where its field for token counts alone is refused and `usage_optional`, it is asked again without. One more is sent
    for each of `loras` that the endpoint doesn't list, where it may have them all the same.
    `connect_s` and `timeout_s` (between two reads) limit each step, `total_s` the whole. Raises EndpointError
    in one line: unreachable, HTML, refused, model lacking, an error to a request that the load would repeat.
    """
    base = base_url.rstrip("/")
    url = base + DIALECTS[dialect].path
    timeout = httpx.Timeout(timeout_s, connect=connect_s)
    socket_path = unix_path(base)

    def request(name: str, *, lora: bool = False, usage: bool = include_usage) -> _Request:
        body = DIALECTS[dialect].encode(
            "Say hello.",
            model=name,
            max_tokens=_PROBE_TOKENS,
            stream=stream,
            include_usage=usage,
            sampling=sampling,
            fields=fields or {},
        )
        return _Request(name, fields or {}, extra, body, lora)

    def ask() -> tuple[list[str], bool, list[_Asked]]:
        transport = httpx.HTTPTransport(uds=socket_path, verify=tls_context())
        with httpx.Client(timeout=timeout, trust_env=False, transport=transport) as client:
            listed = _listed_models(_get_json(client, control_url(base) + "/models", headers))
            _check_loras(url, loras, listed)
            usage = include_usage
            asked = [_post(client, url, headers, request(model), watch_s=_WATCH_S)]
            if usage and usage_optional and asked[0].refused == (_USAGE_FIELD,):
                usage = False
                asked = [_post(client, url, headers, request(model, usage=False), watch_s=_WATCH_S)]
            _check(url, asked[0], dialect, listed)
            # Some servers name a LoRA "base:adapter" and list none.
            unlisted = [one for one in loras if one not in listed]
            asked += [
                _post(client, url, headers, request(one, lora=True, usage=usage)) for one in unlisted[:_MOST_LORAS]
            ]
            for one in asked[1:]:
                _check(url, one, dialect, ())
            return listed, usage, asked

    try:
        listed, usage, asked = within(total_s, ask)
    except httpx.ConnectError as error:
        raise misdirected(base, connect_s) or NotReady(
            f"{base}: can't connect ({error}); is the server running, and is endpoint.url right?", answered=False
        ) from error
    except (httpx.TimeoutException, TimeoutError) as error:
        waited = total_s if isinstance(error, TimeoutError) else timeout_s
        raise misdirected(base, connect_s) or NotReady(
            f"{url}: no answer to a probe within {waited:g} s; is the server still loading the model?", answered=False
        ) from error
    except httpx.HTTPError as error:
        raise misdirected(base, connect_s) or trouble(
            url, f"a probe request failed ({error})", "does the server speak HTTP/1.1 there?"
        ) from error
    except _Refused as error:
        raise misdirected(base, connect_s) or error.error from None
    first = asked[0]
    found = read_answer(first.answer, dialect)
    observed = {
        "models": listed[:20],
        "answered_as": found["model"],
        "server": first.answer.headers.get("server"),
        "usage": found["usage"] is not None and found["usage"].output_tokens is not None,
        "include_usage": usage,
        "id_echo": _echo(first.answer, first.request_id),
        "streamed": found["streamed"],
        "closed_after_ms": first.answer.closed_after_ms,
    }
    rows = tuple(
        attempt_row(
            Role.PROBE,
            number and _FIRST_LORA + number,
            one.request_id,
            one.sent_ns,
            one.answer.end_ns,
            one.answer.status_code,
            read_answer(one.answer, dialect),
        )
        for number, one in enumerate(asked)
    )
    return Probe(observed, rows)


@dataclass(frozen=True)
class _Asked:
    """A probe's request and its answer."""

    request: _Request
    request_id: str
    sent_ns: int
    answer: Answer

    @property
    def refused(self) -> tuple[str, ...]:
        """The body fields that the answer refuses."""
        return refused_fields(self.answer.status_code, self.answer.content, orjson.loads(self.request.body))


class _Refused(EndpointError):
    """An answer that is none, which a URL for the wrong protocol may explain better than `error`."""

    def __init__(self, error: EndpointError) -> None:
        super().__init__(str(error))
        self.error = error


def _post(
    client: httpx.Client, url: str, headers: dict[str, str], request: _Request, *, watch_s: float = 0.0
) -> _Asked:
    request_id = control_id()
    send = {**headers, "Content-Type": "application/json", "X-Request-Id": request_id, "Accept-Encoding": "identity"}
    sent_ns = time.time_ns()
    answer = post(client, control_url(url), request.body, send, watch_s=watch_s)
    return _Asked(request, request_id, sent_ns, answer)


def _check_loras(url: str, loras: Sequence[str], listed: Sequence[str]) -> None:
    """Whether each may be served: one that isn't listed is lacking, as a model is."""
    for lora in loras:
        if listed and lora not in listed and lora.partition(":")[0] not in listed:
            raise trouble(
                url, f"the server lacks LoRA {lora!r}", f"load it there, or take one it lists: {_shown(listed)}"
            )


def _check(url: str, asked: _Asked, dialect: str, listed: Sequence[str]) -> None:
    """Raise EndpointError unless a request was answered well, by the model that was asked for."""
    request, answer = asked.request, asked.answer
    try:
        _check_status(url, answer, request, listed)
    except EndpointError as error:
        if speaks_of_another_protocol(answer.status_code, str(error)):
            raise _Refused(error) from None
        raise
    if _looks_like_html(answer):
        raise trouble(
            url,
            "it answers with an HTML page, not an OpenAI-style API",
            "check endpoint.url: it is the base that ends in /v1 for most servers",
        )
    found = read_answer(answer, dialect)
    if found["error"] is not None:
        fix = request.fix(400, dump_text({"error": found["error"]}).encode())
        raise trouble(url, f"a probe was answered with an error ({found['error']})", fix)
    if listed and request.model not in listed:
        raise trouble(
            url,
            f"the server lacks model {request.model!r} (it answered as {found['model']!r})",
            f"set model.name to one it lists: {_shown(listed)}",
        )


def ask(
    manifest: Manifest, url: str, headers: Mapping[str, str], redactor: Redactor, *, limit_s: float = math.inf
) -> Probe:
    """`probe_endpoint` with a frozen manifest's own request, within `limit_s` seconds.

    Neither findings nor errors hold a secret, which a server may echo.
    """
    endpoint = manifest.endpoint
    waits, usage = endpoint.timeouts, endpoint.include_usage
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
            include_usage=adapter(endpoint.adapter).include_usage if usage is None else usage,
            usage_optional=usage is None,
            sampling=sampling_of(manifest),
            fields=endpoint.fields,
            extra=manifest.sampling.extra,
            loras=tuple(dict.fromkeys(one.lora for one in manifest.workload.classes if one.lora is not None)),
            connect_s=min(waits.connect_s, limit_s),
            timeout_s=min(waits.first_byte_s, limit_s),
            total_s=min(waits.total_s, limit_s),
        )
    except NotReady as error:
        raise NotReady(redactor.text(str(error)), answered=error.answered) from None
    except EndpointError as error:
        raise EndpointError(redactor.text(str(error))) from None
    return Probe(json.loads(redactor.text(dump_text(probe.observed))), probe.attempts)


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
