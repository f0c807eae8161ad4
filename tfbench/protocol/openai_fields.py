"""The fields of OpenAI responses, as the many servers that speak the dialect fill them in.

Everything here takes any JSON value and never raises: a field of the wrong type is unknown, and
only what makes a whole choice unreadable is a fault.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from tfbench.protocol.facts import Usage
from tfbench.protocol.jsonread import count

REASONING_KEYS = (
    "reasoning_content",  # DeepSeek, SGLang, vLLM before 0.11, llama-server, LiteLLM
    "reasoning",  # vLLM, OpenRouter, Groq, Ollama
    "thinking",
    "reasoning_text",
    "thinking_content",
    "thought",
    "reasoning_details",  # OpenRouter: [{"type": "reasoning.text", "text": …}]
    "thinking_blocks",  # LiteLLM: [{"type": "thinking", "thinking": …}]
)
"""Where servers put what a model thinks; the first that shows something counts, as some send the same under two."""

_TEXT_KEYS = ("text", "thinking", "content", "summary", "reasoning")
_NAME_LIMIT = 200
_UNKNOWN = Usage()


class Shown(NamedTuple):
    """What a delta or a message shows. `fault` says why it can't be read."""

    text: str = ""
    reasoning: str = ""
    tool: str = ""
    role: bool = False
    fault: str | None = None


_NOTHING = Shown()
_ROLE = Shown(role=True)


def read_choice(choice: dict[str, Any]) -> Shown:
    """What a choice shows: its chat `delta` (streamed), `message` (not streamed) or completion `text`."""
    for key in ("delta", "message"):
        delta = choice.get(key)
        if isinstance(delta, dict):
            return _read_delta(delta)
        if delta is not None:
            return Shown(fault=f"{key} is {type(delta).__name__}, not an object")
    return _read_delta({"content": choice.get("text")})


def _read_delta(delta: dict[str, Any]) -> Shown:
    filled = [key for key, value in delta.items() if value]
    if not filled:
        return _NOTHING
    if filled == ["role"]:
        return _ROLE
    content = delta.get("content")
    reasoning = ""
    if content is None or isinstance(content, str):
        text = content or ""
    elif isinstance(content, list | dict):
        text, reasoning = _parts(content if isinstance(content, list) else [content])
    else:
        return Shown(fault=f"content is {type(content).__name__}, not text")
    refusal = delta.get("refusal")
    if isinstance(refusal, str):
        text += refusal
    for key in REASONING_KEYS:
        if reasoning:
            break
        value = delta.get(key)
        if value:
            reasoning = _flat(value, 4)
    return Shown(text, reasoning, _tools(delta), bool(delta.get("role")))


def _parts(content: list[Any]) -> tuple[str, str]:
    """Text and reasoning of a list of content parts (Mistral and Databricks put both in one list)."""
    text = reasoning = ""
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and ("thinking" in kind or "reasoning" in kind):
            reasoning += _flat(part, 5)
        else:
            text += _flat(part, 5)
    return text, reasoning


def _flat(value: Any, depth: int) -> str:
    """The text in nested parts, at most `depth` levels down."""
    if isinstance(value, str):
        return value
    if depth and isinstance(value, list):
        return "".join([_flat(item, depth - 1) for item in value])
    if depth and isinstance(value, dict):
        return next(filter(None, (_flat(value.get(key), depth - 1) for key in _TEXT_KEYS)), "")
    return ""


def _tools(delta: dict[str, Any]) -> str:
    """Names and arguments of tool calls (`tool_calls`, or the older `function_call`), joined."""
    calls = delta.get("tool_calls")
    if not calls:
        legacy = delta.get("function_call")
        return _call(legacy) if isinstance(legacy, dict) else ""
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        return ""
    text = ""
    for call in calls:
        if isinstance(call, dict):
            body = call.get("function") or call.get("custom") or call
            text += _call(body) if isinstance(body, dict) else ""
    return text


def _call(body: dict[str, Any]) -> str:
    text = ""
    for key in ("name", "arguments", "input"):
        value = body.get(key)
        if isinstance(value, str):
            text += value
        elif isinstance(value, dict | list) and value:
            try:
                text += orjson.dumps(value).decode()
            except orjson.JSONEncodeError:  # nested deeper than orjson writes, or numbers past 64 bits
                text += "{…}"
    return text


_PROMPT = ("prompt_tokens", "input_tokens", "promptTokens", "inputTokens", "prompt_token_count")
_OUTPUT = ("completion_tokens", "output_tokens", "completionTokens", "outputTokens", "completion_token_count")
_CACHED = (
    "cached_tokens",
    "prompt_cache_hit_tokens",  # DeepSeek
    "cache_read_input_tokens",  # Anthropic, and gateways before it
    "cached_input_tokens",
    "cached_prompt_tokens",
    "cache_read_tokens",
    "num_cached_tokens",
    "cacheReadInputTokens",
    "cachedInputTokens",
)
_REASONING = ("reasoning_tokens", "reasoningTokens")
_PROMPT_DETAILS = ("prompt_tokens_details", "input_tokens_details", "prompt_token_details", "input_token_details")
_OUTPUT_DETAILS = (
    "completion_tokens_details",
    "output_tokens_details",
    "completion_token_details",
    "output_token_details",
)
_MORE = frozenset((*_CACHED, *_REASONING, *_PROMPT_DETAILS, *_OUTPUT_DETAILS))


def read_usage(body: dict[str, Any]) -> Usage | None:
    """The token counts of a response object; None where it has none that can be read.

    Where they are: `usage`, Groq's `x_groq.usage`, or a choice's own `usage` (Moonshot). What is told under several
    names is the first that is no 0: gateways fill the names they don't know with zeros.
    """
    usage = body.get("usage")
    if not isinstance(usage, dict):
        usage = next((found for found in _usages_within(body) if isinstance(found, dict)), None)
        if usage is None:
            return None
    prompt, output = _count(usage, _PROMPT), _count(usage, _OUTPUT)
    if _MORE.isdisjoint(usage):
        return None if prompt is None and output is None else Usage(prompt, None, output, None)
    read = Usage(prompt, _detail(usage, _PROMPT_DETAILS, _CACHED), output, _detail(usage, _OUTPUT_DETAILS, _REASONING))
    return None if read == _UNKNOWN else read


def _usages_within(body: dict[str, Any]) -> Iterator[Any]:
    groq = body.get("x_groq")
    if isinstance(groq, dict):
        yield groq.get("usage")
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            yield choice.get("usage")


def _count(fields: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of the named fields that is a count over 0; 0 where one says 0 and none says more."""
    zero = None
    for name in names:
        number = count(fields.get(name))
        if number:
            return number
        zero = zero if number is None else 0
    return zero


def _detail(usage: dict[str, Any], details: tuple[str, ...], names: tuple[str, ...]) -> int | None:
    """A count that stands among the details, or beside the counts that it is a part of."""
    zero = None
    for fields in (*map(usage.get, details), usage):
        number = _count(fields, names) if isinstance(fields, dict) else None
        if number:
            return number
        zero = zero if number is None else 0
    return zero


def read_finish(choice: dict[str, Any]) -> str | None:
    """A choice's finish reason; None while there is none ("" and null are none)."""
    reason = choice.get("finish_reason")
    if isinstance(reason, dict):  # SGLang's own form: {"type": "length", "length": 8}
        reason = reason.get("type")
    return reason[:_NAME_LIMIT] if isinstance(reason, str) and reason else None


def read_name(body: dict[str, Any], key: str) -> str | None:
    """A string field such as `model` or `id`, cut at 200 characters; None where it is no string."""
    value = body.get(key)
    return value[:_NAME_LIMIT] if isinstance(value, str) and value else None


def counted_tokens(choices: list[Any]) -> int | None:
    """How many tokens the choices of one event list: their ids (vLLM's `return_token_ids`) or log probabilities.

    None unless each choice lists some: a choice without a list says nothing.
    """
    total = 0
    for choice in choices:
        number = _listed(choice) if isinstance(choice, dict) else None
        if number is None:
            return None
        total += number
    return total if choices else None


def _listed(choice: dict[str, Any]) -> int | None:
    ids = choice.get("token_ids")
    if isinstance(ids, list):
        return len(ids)
    found = choice.get("logprobs")
    if isinstance(found, dict):
        for key in ("content", "tokens", "token_logprobs", "refusal"):
            listed = found.get(key)
            if isinstance(listed, list) and listed:
                return len(listed)
    return None


def in_order(choices: list[Any]) -> list[tuple[int, Any]]:
    """Choices with their index, in index order; one without an index has its position."""
    indexed = []
    for position, choice in enumerate(choices):
        index = choice.get("index") if isinstance(choice, dict) else None
        indexed.append((index if type(index) is int else position, choice))
    return sorted(indexed, key=lambda pair: pair[0])
