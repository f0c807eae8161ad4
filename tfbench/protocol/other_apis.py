"""Answers in the form of another API than OpenAI's: told by name, since the URL is right and the path is not."""

from typing import Any

_ANTHROPIC = frozenset(
    (
        "message",
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    )
)


def other_api(body: dict[str, Any]) -> str | None:
    """What to say of a JSON object that is an answer, or a part of one, of an API known here; None for any other."""
    name = _name(body)
    if name is None:
        return None
    return f"the answer is in the form of {name}, not of OpenAI's: use the server's OpenAI-style endpoint (…/v1)"


def _name(body: dict[str, Any]) -> str | None:
    kind = body.get("type")
    if isinstance(kind, str):
        if kind in _ANTHROPIC and (kind != "message" or isinstance(body.get("content"), list)):
            return "Anthropic's Messages API"
        if kind.startswith("response."):
            return "OpenAI's Responses API"
    if body.get("object") == "response":
        return "OpenAI's Responses API"
    if isinstance(body.get("done"), bool) and ("message" in body or "response" in body):
        return "Ollama's own API"
    if isinstance(body.get("candidates"), list):
        return "Google's Gemini API"
    if isinstance(body.get("stop"), bool) and isinstance(body.get("content"), str):
        return "llama.cpp's own API"
    if isinstance(body.get("token"), dict) or isinstance(body.get("generated_text"), str):
        return "Text Generation Inference's own API"
    return None
