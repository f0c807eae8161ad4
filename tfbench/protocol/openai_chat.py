"""OpenAI chat completions: `POST {base}/chat/completions`, base ending in /v1."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from tfbench.protocol.openai_body import decode_body, encode_request
from tfbench.protocol.openai_stream import StreamDecoder

__all__ = ["PATH", "StreamDecoder", "decode_body", "encode"]

PATH = "/chat/completions"


def encode(
    prompt: str,
    *,
    model: str,
    max_tokens: int | None,
    stream: bool,
    include_usage: bool,
    sampling: Mapping[str, Any],
    fields: Mapping[str, str | Literal[False]] = MappingProxyType({}),
) -> bytes:
    """The request body for one user message; see `encode_request`."""
    return encode_request(
        {"messages": [{"role": "user", "content": prompt}]},
        model=model,
        max_tokens=max_tokens,
        stream=stream,
        include_usage=include_usage,
        sampling=sampling,
        fields=fields,
    )
