"""The dialects by the names manifests use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

from tfbench.protocol import openai_chat, openai_completions
from tfbench.protocol.facts import BodyResult, Chunk, Usage
from tfbench.protocol.sse import SseEvent


class Encode(Protocol):
    """Makes a request body from a prompt."""

    def __call__(
        self,
        prompt: str,
        *,
        model: str,
        max_tokens: int | None,
        stream: bool,
        include_usage: bool,
        sampling: Mapping[str, Any],
        fields: Mapping[str, str | Literal[False]] = ...,
    ) -> bytes: ...


class Decoder(Protocol):
    """Reads one stream; see `openai_stream.StreamDecoder` for what each attribute says."""

    @property
    def usage(self) -> Usage | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def done(self) -> bool: ...
    @property
    def error(self) -> str | None: ...
    @property
    def response_model(self) -> str | None: ...
    @property
    def response_id(self) -> str | None: ...
    @property
    def role_tokens(self) -> int: ...
    def verdict(self) -> str | None: ...
    def feed(self, event: SseEvent) -> Chunk | None: ...
    def pattern(self, data: bytes, text: str) -> tuple[bytes, bytes] | None: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of endpoint speaks. `path` is relative to a base URL that ends in /v1."""

    name: str
    path: str
    encode: Encode
    stream_decoder: Callable[[], Decoder]
    decode_body: Callable[[bytes], BodyResult]


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        name: Dialect(name, module.PATH, module.encode, module.StreamDecoder, module.decode_body)
        for name, module in (("openai_chat", openai_chat), ("openai_completions", openai_completions))
    }
)
"""Every dialect by name."""
