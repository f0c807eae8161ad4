"""The OpenAI request bodies the engine takes, checked; and its errors, in OpenAI's shape. Pure.

Of a request's parameters the engine obeys the model, the prompt, the limits, `stream`, `stream_options` and
`ignore_eos`; the sampling parameters are checked for their type and change nothing, since its tokens are fixed.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson

from tfbench.engine.config import EngineConfig
from tfbench.engine.kv import chain
from tfbench.engine.tokens import TokenSource, natural_length, token_source

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"


class ApiError(Exception):
    """A request that is refused: HTTP status, message, OpenAI error type, parameter at fault if any, more headers."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str,
        param: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.headers = headers

    def body(self) -> bytes:
        """The JSON body."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return orjson.dumps({"error": error})


@dataclass(frozen=True, slots=True)
class Submission:
    """A request as the engine runs it: how many tokens, whence, and why it will end.

    `blocks` are the hashes of the prompt's full blocks where the engine reuses prompts, else empty.
    """

    chat: bool
    model: str
    source: TokenSource
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    blocks: tuple[int, ...] = ()


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A 400."""
    return ApiError(400, message, "BadRequestError", param)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object, least: float = -math.inf, most: float = math.inf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_count(value: object) -> bool:
    return _is_int(value) and _is_number(value, least=1)


def _is_one(value: object) -> bool:
    return _is_int(value) and value == 1


def _is_stop(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


_Check = tuple[Callable[[object], bool], str]
_BOOL: _Check = (lambda value: isinstance(value, bool), "a boolean")
_STRING: _Check = (lambda value: isinstance(value, str), "a string")
_COUNT: _Check = (_is_count, "an integer of at least 1")
_ONE: _Check = (_is_one, "1, since this engine gives one choice a request")
_PENALTY: _Check = (lambda value: _is_number(value, -2, 2), "a number from -2 to 2")
_PARAMETERS: Mapping[str, _Check] = {
    "model": _STRING,
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "n": _ONE,
    "best_of": _ONE,
    "stream": _BOOL,
    "stream_options": (lambda value: isinstance(value, dict), "an object"),
    "ignore_eos": _BOOL,
    "temperature": (lambda value: _is_number(value, least=0), "a number of at least 0"),
    "top_p": (lambda value: _is_number(value, 0, 1), "a number from 0 to 1"),
    "seed": (_is_int, "an integer"),
    "stop": (_is_stop, "a string or a list of strings"),
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "user": _STRING,
    "cache_salt": _STRING,
}


def parse_submission(raw: bytes, config: EngineConfig, *, chat: bool) -> Submission:
    """The checked request of a body, for /v1/chat/completions (`chat`) or /v1/completions. Raises ApiError."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise bad_request("The body must be a JSON object.")
    for name, (check, expected) in _PARAMETERS.items():
        value = body.get(name)
        if value is not None and not check(value):
            raise bad_request(f"{name} must be {expected}, not {_shown(value)}.", name)
    model = body.get("model") or config.model
    if model != config.model and model not in config.loras:
        served = ", ".join(f"`{name}`" for name in (config.model, *config.loras))
        message = f"The model `{model}` does not exist. This engine serves {served}."
        raise ApiError(404, message, "NotFoundError", "model")
    prompt, words = _chat_prompt(body) if chat else _text_prompt(body)
    source = token_source(prompt)
    output_tokens, finish_reason = output_length(body, config, source, len(words))
    stream = body.get("stream") or False
    include_usage, continuous_usage = _stream_options(body, stream)
    blocks: tuple[int, ...] = ()
    if config.prefix_reuse:
        extra = ("" if model == config.model else model, body.get("cache_salt") or body.get("user") or "")
        blocks = chain(_full_blocks(words, config.block_tokens), extra)
    return Submission(
        chat=chat,
        model=model,
        source=source,
        prompt_tokens=len(words),
        output_tokens=output_tokens,
        finish_reason=finish_reason,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        blocks=blocks,
    )


def _full_blocks(words: list[str], block_tokens: int) -> Iterator[bytes]:
    """What each full block of a prompt holds."""
    for end in range(block_tokens, len(words) + 1, block_tokens):
        yield " ".join(words[end - block_tokens : end]).encode()


def _stream_options(body: dict[str, Any], stream: bool) -> tuple[bool, bool]:
    options = body.get("stream_options")
    if options is None:
        return False, False
    if not stream:
        raise bad_request("stream_options may only be given together with stream: true.", "stream_options")
    for name in ("include_usage", "continuous_usage_stats"):
        value = options.get(name)
        if value is not None and not isinstance(value, bool):
            raise bad_request(f"stream_options.{name} must be a boolean, not {_shown(value)}.", "stream_options")
    include = options.get("include_usage") or False
    return include, include and (options.get("continuous_usage_stats") or False)


def output_length(
    body: dict[str, Any], config: EngineConfig, source: TokenSource, prompt_tokens: int
) -> tuple[int, str]:
    """How many tokens the reply to a checked body has, and its finish_reason. Raises ApiError where they don't fit."""
    named = body.get("max_completion_tokens") or body.get("max_tokens")
    room = config.context_tokens - prompt_tokens
    least = named or 1
    if room < least:
        raise bad_request(
            f"This model's maximum context length is {config.context_tokens} tokens. However, you requested "
            f"{prompt_tokens + least} tokens ({prompt_tokens} in the prompt, {least} for the completion). "
            "Please reduce the length of the prompt or the completion.",
            "max_tokens" if room >= 1 else "input_tokens",
        )
    limit = named or min(config.default_max_tokens, room)
    if config.mean_output_tokens is not None and not body.get("ignore_eos"):
        natural = natural_length(source, config.mean_output_tokens)
        if natural <= limit:
            return natural, "stop"
    return limit, "length"


def _chat_prompt(body: dict[str, Any]) -> tuple[bytes, list[str]]:
    """What a reply depends on, and the prompt's tokens; the first one of a message says whose it is."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request(f"messages must be a list of at least one message, not {_shown(messages)}.", "messages")
    words: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise bad_request(f"messages[{index}] must be an object with a role.", "messages")
        said = _content_text(message.get("content"), index).split()
        if said:
            said[0] = f"{message['role']}: {said[0]}"
            words += said
    if not words:
        raise bad_request("messages hold no text.", "messages")
    return orjson.dumps(messages), words


def _content_text(content: object, index: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        strings = [text for text in texts if isinstance(text, str)]
        if len(strings) == len(content):
            return " ".join(strings)
    raise bad_request(f"messages[{index}].content must be a string or a list of text parts.", "messages")


def _text_prompt(body: dict[str, Any]) -> tuple[bytes, list[str]]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        encoded, words = prompt.encode(), prompt.split()
    elif isinstance(prompt, list) and all(_is_int(item) for item in prompt):
        encoded, words = orjson.dumps(prompt), list(map(str, prompt))
    else:
        raise bad_request("prompt must be one string or one list of token numbers.", "prompt")
    if not words:
        raise bad_request("prompt holds no tokens.", "prompt")
    return encoded, words


def _shown(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
