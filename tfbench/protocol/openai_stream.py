"""Reads streamed OpenAI responses; both dialects share it, as servers mix their forms."""

from typing import Any

import orjson

from tfbench.core.kinds import VISIBLE_KINDS, ChunkKind
from tfbench.protocol.facts import Chunk, Usage
from tfbench.protocol.faults import describe, describe_bytes, find_error
from tfbench.protocol.jsonread import loads
from tfbench.protocol.openai_fields import (
    counted_tokens,
    in_order,
    read_choice,
    read_finish,
    read_name,
    read_usage,
)
from tfbench.protocol.other_apis import other_api
from tfbench.protocol.sse import SseEvent

_TEXT = ChunkKind.TEXT
_EMPTY = ChunkKind.EMPTY
_SILENT = (ChunkKind.ROLE, ChunkKind.FINISH, _EMPTY)
_TEXT_KEYS = (b'"content":"', b'"content": "', b'"text":"', b'"text": "')
_PROBE = "~some other text~"
_COMMENT = Chunk(ChunkKind.COMMENT, "", None)
_ERROR = Chunk(ChunkKind.ERROR, "", None)
_USAGE = Chunk(ChunkKind.USAGE, "", None)
_RANK = {
    kind: rank
    for rank, kind in enumerate(
        (
            ChunkKind.EMPTY,
            ChunkKind.FINISH,
            ChunkKind.ROLE,
            ChunkKind.REASONING,
            ChunkKind.TOOL,
            ChunkKind.TEXT,
            ChunkKind.ERROR,
        )
    )
}


class StreamDecoder:
    """Turns the events of one stream into chunks. No input raises, and an error doesn't end it.

    usage           token counts so far; later reports complete and replace earlier ones
    finish_reason   of choice 0
    done            the end mark `[DONE]` came
    error           the first error's message: an error object, an `error` event, a finish reason
                    "error", or data that isn't a chunk
    response_model, response_id   as the server names them
    role_tokens     tokens that the first role chunk brought, as later reports showed: then it was output
    """

    __slots__ = (
        "_answered",
        "_base",
        "_opened",
        "_other",
        "_owed",
        "_plain",
        "_uneven",
        "done",
        "error",
        "finish_reason",
        "response_id",
        "response_model",
        "role_tokens",
        "usage",
    )

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.error: str | None = None
        self.response_model: str | None = None
        self.response_id: str | None = None
        self.role_tokens = 0
        # Tokens reported up to the chunk before; None when chunks came since the last report.
        self._base: int | None = 0
        # Reports were seen not to keep pace with the chunks.
        self._uneven = False
        # Tokens reported with the role: some servers tell then of the chunk that follows.
        self._owed = 0
        # Choices that have begun: a role after that (some send one with each delta) opens nothing.
        self._opened: set[int] = set()
        self._plain = False
        self._answered = False
        self._other: str | None = None

    def pattern(self, data: bytes, text: str) -> tuple[bytes, bytes] | None:
        """What stands before and after `text` in the event `data` that was fed last, where nothing else was in it.

        An event that begins and ends so, with other text between that has neither quote nor backslash nor control
        character, would be a text chunk of that text and change nothing else. None where that isn't sure.
        """
        if not self._plain or b"\\" in data or not text.isprintable():
            return None
        shown = text.encode() + b'"'
        for key in _TEXT_KEYS:
            start = data.find(key) + len(key)
            if start >= len(key) and data.startswith(shown, start):
                head, foot = data[:start], data[start + len(shown) - 1 :]
                if self._shows(head + _PROBE.encode() + foot):
                    return head, foot
        return None

    def _shows(self, data: bytes) -> bool:
        """Whether the text of an event like the one before would be _PROBE: keys can come twice, or elsewhere."""
        try:
            choice = orjson.loads(data)["choices"][0]
        except orjson.JSONDecodeError:
            # JSON only by a looser reader.
            return False
        index = choice.get("index")
        return self._choice(choice, index if type(index) is int else 0) == (_TEXT, _PROBE)

    def feed(self, event: SseEvent) -> Chunk | None:
        """The event's chunk, or None for the end mark.

        A delta that shows several things at once counts as text before tool before reasoning, and
        `Chunk.text` holds that kind's part. What shows nothing is empty where it is known to have brought
        tokens (ids, log probabilities, or a count that rose with it), else role (once a choice), usage, finish
        or empty. Objects without choices or usage are comments.
        """
        data, name, comment, _ = event
        if comment:
            return _COMMENT
        if name == b"error":
            return self._fail(describe_bytes(data) or "error event without a message")
        if data == b"[DONE]":
            self.done = True
            return None
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            stripped = data.strip()
            if stripped == b"[DONE]":
                self.done = True
                return None
            if not stripped:
                return _COMMENT
            try:
                body = loads(data)
            except ValueError as fault:
                return self._fail(f"data that isn't JSON ({fault})")
        if type(body) is not dict:
            if body == "[DONE]":
                self.done = True
                return None
            return self._fail(f"data is a JSON {type(body).__name__}, not an object")
        if self.response_model is None:
            self.response_model = read_name(body, "model")
            self.response_id = self.response_id or read_name(body, "id")
        choices = body.get("choices")
        if type(choices) is list and choices and not body.get("error"):
            return self._output(body, choices)
        message = find_error(body)
        if message is not None:
            return self._fail(message)
        if choices:
            return self._fail(f"choices is {type(choices).__name__}, not a list")
        usage = read_usage(body)
        if usage is not None:
            self._account(usage)
        if self._other is None and not self._answered and "choices" not in body:
            self._other = other_api(body)
        return _COMMENT if usage is None else _USAGE

    def verdict(self) -> str | None:
        """What is wrong with a stream that has ended so; None where it is an answer, to its end."""
        if self.error is not None:
            return self.error if self._other is None else f"{self.error} ({self._other})"
        if not self._answered and self._other is not None:
            return self._other
        if not self._answered and self.done:
            return "the stream has no choices: it ends without an answer"
        if self.finish_reason is None and not self.done:
            return "the stream ended without finish_reason or end mark"
        return None

    def _output(self, body: dict[str, Any], choices: list[Any]) -> Chunk:
        """The chunk of an object with choices."""
        self._answered = True
        self._plain = False
        tokens = usage = None
        if len(choices) == 1 and type(choices[0]) is dict:
            choice = choices[0]
            index = choice.get("index")
            kind, text = self._choice(choice, index if type(index) is int else 0)
            if choice.get("logprobs") or choice.get("token_ids") is not None:
                tokens = counted_tokens(choices)
            if body.get("usage") or body.get("x_groq") or choice.get("usage"):
                usage = read_usage(body)
            elif kind is _TEXT:
                # What nearly every event is: text, of which nothing is said.
                self._base, self._owed = None, 0
                self._plain = tokens is None and choice.get("finish_reason") is None
                return Chunk(_TEXT, text, tokens or None)
        else:
            kind, text = self._choices(choices)
            tokens = counted_tokens(choices)
            usage = read_usage(body)
        shown = kind in VISIBLE_KINDS
        if usage is not None:
            grown = self._account(usage, kind)
            tokens = grown if tokens is None else tokens
        if (shown or kind is _EMPTY) and (usage is None or usage.output_tokens is None):
            self._base, self._owed = None, 0
        if shown:
            tokens = tokens or None  # what shows something took a token: a 0 there counts nothing
        elif tokens and kind in _SILENT:
            kind = _EMPTY
        elif usage is not None and (kind is ChunkKind.FINISH or (kind is _EMPTY and usage.output_tokens)):
            kind = ChunkKind.USAGE
        return Chunk(kind, text, tokens)

    def _choices(self, choices: list[Any]) -> tuple[ChunkKind, str]:
        """Several choices in one event: the highest kind of any, and the text of all that have it."""
        kind, text = ChunkKind.EMPTY, ""
        for index, choice in in_order(choices):
            its_kind, its_text = self._choice(choice, index)
            if its_kind is kind:
                text += its_text
            elif _RANK[its_kind] > _RANK[kind]:
                kind, text = its_kind, its_text
        return kind, text

    def _choice(self, choice: Any, index: int) -> tuple[ChunkKind, str]:
        if type(choice) is not dict:
            self._fail(f"a choice is {type(choice).__name__}, not an object")
            return ChunkKind.ERROR, ""
        finish = None
        if choice.get("finish_reason") is not None:
            finish = read_finish(choice)
            if finish is not None and index == 0:
                self.finish_reason = finish
            if finish == "error":
                self._fail(describe(choice.get("error") or "finish reason error"))
                return ChunkKind.ERROR, ""
        delta = choice.get("delta")
        content = delta.get("content") if type(delta) is dict else choice.get("text")
        if content and type(content) is str:
            self._opened.add(index)
            return _TEXT, content
        shown = read_choice(choice)
        if shown.fault is not None:
            self._fail(shown.fault)
            return ChunkKind.ERROR, ""
        for kind, text in (
            (ChunkKind.TEXT, shown.text),
            (ChunkKind.TOOL, shown.tool),
            (ChunkKind.REASONING, shown.reasoning),
        ):
            if text:
                self._opened.add(index)
                return kind, text
        if shown.role and index not in self._opened:
            self._opened.add(index)
            return ChunkKind.ROLE, ""
        if finish is not None:
            return ChunkKind.FINISH, ""
        self._opened.add(index)
        return _EMPTY, ""

    def _account(self, usage: Usage, kind: ChunkKind = ChunkKind.USAGE) -> int | None:
        """Takes a usage report in; the tokens that it says came with the chunk of this kind, where that is known.

        The first report counts from the stream's start when no output came before it. A report that doesn't rise with
        what is shown tells of other chunks than its own, and so may all that follow.
        """
        base, now, shown = self._base, usage.output_tokens, kind in VISIBLE_KINDS
        self.usage = usage if self.usage is None else self.usage.updated(usage)
        if now is None:
            return None
        self._base = now
        if base is None or now < base or self._uneven:
            return None
        grown = now - base
        if kind is ChunkKind.ROLE and grown:
            self._owed = grown
            return None
        owed, self._owed = self._owed, 0
        if grown or not shown:
            self.role_tokens = self.role_tokens or owed
            return grown
        self._uneven = not owed
        return owed

    def _fail(self, message: str) -> Chunk:
        if self.error is None:
            self.error = message
        return _ERROR
