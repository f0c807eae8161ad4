"""Priming: the requests that leave a system's prefix cache as warm as the manifest declares."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tfbench.core.errors import EndpointError
from tfbench.core.jsonio import sha256_hex
from tfbench.core.kinds import Role
from tfbench.core.redact import Redactor
from tfbench.load.target import control_url, tls_context, unix_path
from tfbench.manifest import Manifest, RunPlan
from tfbench.protocol import DIALECTS
from tfbench.study.probe import attempt_row, control_id, post, read_answer, within
from tfbench.study.record import sampling_of
from tfbench.study.watch import Watcher
from tfbench.workload import Item, Workload, build_workload

_FIRST = 1 << 39
"""Index of the first item of which a prime takes the words; no run's load comes that far."""


def prime_items(manifest: Manifest, plan: RunPlan, salt: str | None = None) -> Iterator[tuple[int, Item]]:
    """What is sent before a run, for one token each, with its index; nothing where no warm cache is declared."""
    prime = manifest.load.prime
    if prime is None:
        return
    workload = build_workload(manifest, plan, salt)
    own = ((i, workload.item(i)) for i in range(prime.count))
    for i, item in own if prime.set == "prompts" else _prefixed(workload, prime.count):
        yield i, item._replace(max_tokens=1, cancel=False)


def _prefixed(workload: Workload, count: int) -> Iterator[tuple[int, Item]]:
    """The shared prefix with further words that are nobody's, for every LoRA and tenant: they share no cache."""
    owners = dict.fromkeys((kind.tenant, kind.lora) for kind in workload.kinds)
    for i, (tenant, lora) in enumerate((owner for owner in owners for _ in range(count)), start=_FIRST):
        yield i, workload.item(i)._replace(class_name=None, tenant=tenant, lora=lora)


def cache_facts(manifest: Manifest, primes: int, *, flushed: bool, salt: str | None = None) -> dict[str, Any]:
    """For `runs.observed`: what the manifest declares of the prefix cache, and what was done for it.

    Prompts are each run's own whatever is declared, and each study's where that has a `salt`: given as `load.salt` it
    makes the same prompts again.
    """
    salt = manifest.load.salt if salt is None else salt
    prompts = "salted per run and study" if salt else "salted per run"
    return {
        "declared": manifest.load.cache,
        "prompts": prompts,
        "salt": salt or "",
        "flushed": flushed,
        "primes": primes,
    }


def prime(
    manifest: Manifest,
    plan: RunPlan,
    url: str,
    headers: Mapping[str, str],
    redactor: Redactor,
    watcher: Watcher,
    *,
    salt: str | None = None,
    include_usage: bool = True,
) -> tuple[dict[str, Any], ...]:
    """Send a run's priming requests one after the other; their rows of `attempts`, without run and host.

    EndpointError where one isn't answered well: the cache is then not what the manifest says.
    """
    items = [item for _, item in prime_items(manifest, plan, salt)]
    if not items:
        return ()
    watcher.preparing(f"priming with {len(items)} request{'s' if len(items) > 1 else ''}")
    waits = manifest.endpoint.timeouts
    timeout = httpx.Timeout(waits.first_byte_s, connect=waits.connect_s)
    transport = httpx.HTTPTransport(uds=unix_path(url), verify=tls_context())
    rows = []
    with httpx.Client(timeout=timeout, trust_env=False, transport=transport) as client:
        for number, item in enumerate(items, start=1):
            try:
                rows.append(_sent(client, manifest, url, headers, item, number, include_usage))
            except (EndpointError, httpx.HTTPError, TimeoutError) as error:
                why = redactor.text(str(error)) or type(error).__name__
                raise EndpointError(
                    f"{url}: priming request {number} of {len(items)} failed ({why}); "
                    "mend the server, or change load.prime"
                ) from None
    return tuple(rows)


def _sent(
    client: httpx.Client,
    manifest: Manifest,
    url: str,
    headers: Mapping[str, str],
    item: Item,
    number: int,
    include_usage: bool,
) -> dict[str, Any]:
    """Send one; its row. EndpointError says why it isn't well."""
    endpoint = manifest.endpoint
    speak = DIALECTS[str(endpoint.dialect)]
    sampling = sampling_of(manifest)
    body = speak.encode(
        item.prompt,
        model=manifest.model.name if item.lora is None else item.lora,
        max_tokens=item.max_tokens,
        stream=endpoint.stream,
        include_usage=include_usage,
        sampling=sampling if item.tenant is None else {**sampling, "user": item.tenant},
        fields=endpoint.fields,
    )
    request_id = control_id()
    send = {**headers, "Content-Type": "application/json", "X-Request-Id": request_id, "Accept-Encoding": "identity"}
    sent_ns = time.time_ns()
    limit_s = endpoint.timeouts.total_s
    answer = within(limit_s, lambda: post(client, control_url(url.rstrip("/") + speak.path), body, send))
    if not 200 <= answer.status_code < 300:
        raise EndpointError(answer.error_message())
    found = read_answer(answer, str(endpoint.dialect))
    if found["error"] is not None:
        raise EndpointError(str(found["error"]))
    row = attempt_row(Role.PRIME, number, request_id, sent_ns, answer.end_ns, answer.status_code, found)
    labels = {"class": item.class_name, "tenant": item.tenant, "lora": item.lora}
    return {**row, **labels, "prompt_sha256": sha256_hex(item.prompt.encode())}
