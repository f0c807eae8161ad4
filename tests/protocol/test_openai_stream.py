"""Streams servers send, and streams no server should: kinds, tokens, errors."""

import json
from typing import Any

import pytest

from tests.protocol.captures import Read, read_stream, sse
from tfbench.core.kinds import ChunkKind
from tfbench.protocol import DIALECTS, Chunk, SseEvent, Usage
from tfbench.protocol.openai_fields import REASONING_KEYS

ROLE, TEXT, REASONING, TOOL, EMPTY, USAGE, FINISH, ERROR, COMMENT = (
    ChunkKind(name) for name in "role text reasoning tool empty usage finish error comment".split()
)


def chunk(delta: Any, finish: Any = None, **fields: Any) -> str:
    return json.dumps({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields})


def completion(text: Any, finish: Any = None, **fields: Any) -> str:
    return json.dumps({"model": "m", "choices": [{"index": 0, "text": text, "finish_reason": finish}], **fields})


def read(*objects: str, dialect: str = "openai_chat") -> Read:
    return read_stream([sse(*objects)], dialect)


def usage(output: int, prompt: int = 5) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def kind_of(delta: Any, finish: Any = None, **fields: Any) -> ChunkKind:
    return read(chunk(delta, finish, **fields)).kinds[0]


# Kinds


@pytest.mark.parametrize(
    ("delta", "finish", "kind", "text"),
    [
        ({"role": "assistant", "content": ""}, None, ROLE, ""),
        ({"role": "assistant", "content": None}, None, ROLE, ""),
        ({"role": "assistant"}, None, ROLE, ""),
        ({"role": "assistant", "content": "Hi"}, None, TEXT, "Hi"),
        ({"role": "assistant", "content": ""}, "stop", ROLE, ""),
        ({"content": " "}, None, TEXT, " "),
        ({"content": "\n"}, "length", TEXT, "\n"),
        ({"content": ""}, None, EMPTY, ""),
        ({"content": None}, None, EMPTY, ""),
        ({}, None, EMPTY, ""),
        (None, None, EMPTY, ""),
        ({"content": "", "tool_calls": [], "function_call": None, "refusal": None}, None, EMPTY, ""),
        ({}, "stop", FINISH, ""),
        (None, "stop", FINISH, ""),
        ({"content": ""}, "length", FINISH, ""),
        ({"refusal": "No."}, None, TEXT, "No."),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, None, TEXT, "ab"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, None, REASONING, "hm"),
        ({"content": [{"type": "reasoning", "summary": [{"text": "so"}]}]}, None, REASONING, "so"),
        ({"reasoning": "", "content": "x"}, None, TEXT, "x"),
        ({"reasoning": "hm", "content": "x"}, None, TEXT, "x"),
        ({"reasoning": "hm", "content": ""}, None, REASONING, "hm"),
        ({"reasoning": "hm", "reasoning_content": "hm"}, None, REASONING, "hm"),
        ({"reasoning": "second", "reasoning_content": "first"}, None, REASONING, "first"),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, None, REASONING, "hm"),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x9"}]}, None, EMPTY, ""),
        ({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}, None, TOOL, "f"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}, None, TOOL, '{"a'),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, None, EMPTY, ""),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, None, TOOL, 'f{"a":1}'),
        ({"tool_calls": [{"custom": {"name": "f", "input": "x"}}]}, None, TOOL, "fx"),
        ({"function_call": {"name": "f", "arguments": "{}"}}, None, TOOL, "f{}"),
        ({"reasoning": "hm", "tool_calls": [{"function": {"name": "f"}}]}, None, TOOL, "f"),
    ],
)
def test_kind_and_text_of_a_first_delta(delta: Any, finish: str | None, kind: ChunkKind, text: str) -> None:
    result = read(chunk(delta, finish))
    assert result.chunks == [Chunk(kind, text, None)]
    assert (result.decoder.finish_reason, result.decoder.error) == (finish, None)


@pytest.mark.parametrize("key", REASONING_KEYS)
def test_reasoning_under_each_known_name(key: str) -> None:
    assert read(chunk({"role": "assistant", "content": "", key: "hm"})).chunks == [Chunk(REASONING, "hm", None)]


@pytest.mark.parametrize(
    ("text", "finish", "kind"),
    [("x", None, TEXT), ("x", "stop", TEXT), ("", None, EMPTY), (None, None, EMPTY), ("", "length", FINISH)],
)
def test_kinds_of_text_completions(text: str | None, finish: str | None, kind: ChunkKind) -> None:
    assert read(completion(text, finish), dialect="openai_completions").chunks == [Chunk(kind, text or "", None)]


def test_role_opens_a_choice_once() -> None:
    role = chunk({"role": "assistant", "content": ""})
    assert read(role, role, chunk({"content": "a"}), role).kinds == [ROLE, EMPTY, TEXT, EMPTY]


def test_a_whole_message_instead_of_a_delta() -> None:
    whole = json.dumps({"choices": [{"message": {"role": "assistant", "content": "all"}, "finish_reason": "stop"}]})
    assert read(whole).chunks == [Chunk(TEXT, "all", None)]


def test_log_probabilities_say_how_many_tokens_came() -> None:
    listed = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]}
    text = json.dumps({"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": listed, "finish_reason": None}]})
    assert read(text).chunks == [Chunk(TEXT, "a", 1)]
    assert read(text.replace("-0.1", "-Infinity")).chunks == [Chunk(TEXT, "a", 1)]


@pytest.mark.parametrize(
    "text",
    [
        '{"choices":[]}',
        '{"choices":[],"usage":null,"prompt_filter_results":[{"prompt_index":0}]}',
        '{"choices":null}',
        '{"type":"ping"}',
        "{}",
        "",
        "  ",
        '{"choices":[],"usage":{}}',
        '{"choices":[],"usage":"12"}',
        '{"choices":[],"usage":[1]}',
        '{"error":null}',
    ],
)
def test_what_says_nothing_is_a_comment(text: str) -> None:
    result = read(text)
    assert result.kinds == [COMMENT]
    assert (result.decoder.error, result.decoder.usage) == (None, None)


def test_pings_are_comments() -> None:
    assert read_stream([b":\n\n: OPENROUTER PROCESSING\n\n", sse(chunk({"content": "a"}))]).kinds == [
        COMMENT,
        COMMENT,
        TEXT,
    ]


# Ends


@pytest.mark.parametrize("mark", ["[DONE]", " [DONE] ", '"[DONE]"'])
def test_the_end_mark_is_no_chunk(mark: str) -> None:
    result = read(chunk({"content": "a"}), mark, chunk({}, "stop"))
    assert result.decoder.done
    assert result.kinds == [TEXT, FINISH]


def test_an_end_without_a_mark_or_a_finish_shows() -> None:
    result = read(chunk({"content": "a"}))
    assert (result.decoder.done, result.decoder.finish_reason) == (False, None)


def test_no_space_after_the_colon_changes_nothing() -> None:
    stream = sse(chunk({"role": "assistant"}), chunk({"content": " a"}), "[DONE]").replace(b"data: ", b"data:")
    result = read_stream([stream])
    assert (result.kinds, result.text(), result.decoder.done) == ([ROLE, TEXT], " a", True)


@pytest.mark.parametrize(
    ("finish", "reason"), [("", None), (None, None), ({"type": "length", "length": 8}, "length"), (1, None), ([], None)]
)
def test_finish_reasons_of_odd_shapes(finish: Any, reason: str | None) -> None:
    assert read(chunk({"content": "a"}, finish)).decoder.finish_reason == reason


# Usage and tokens


def test_usage_in_the_same_chunk_as_choices() -> None:
    result = read(chunk({"content": "a"}), chunk({"content": "b"}, "stop", usage=usage(2)))
    assert result.kinds == [TEXT, TEXT]
    assert result.decoder.usage == Usage(5, None, 2, None)
    assert result.tokens == [None, None]  # the report covers two chunks
    assert read(chunk({"content": "a"}), chunk({}, "stop", usage=usage(1))).kinds == [TEXT, USAGE]


def test_a_first_report_counts_from_the_start_when_no_output_came_before() -> None:
    result = read(chunk({"role": "assistant"}), chunk({"content": "all of it"}, "stop", usage=usage(9)))
    assert (result.kinds, result.tokens) == ([ROLE, TEXT], [None, 9])


def test_a_gap_in_the_reports_leaves_tokens_unknown() -> None:
    result = read(
        chunk({"content": "a"}, usage=usage(1)),
        chunk({"content": "b"}),
        chunk({"content": "c"}, usage=usage(4)),
        chunk({"content": "d"}, usage=usage(6)),
        chunk({"content": "e"}, usage=usage(3)),
    )
    assert result.tokens == [1, None, None, 2, None]


def test_an_empty_delta_that_brings_tokens_stays_empty_beside_usage() -> None:
    result = read(
        chunk({"role": "assistant", "content": ""}, usage=usage(0)),
        chunk({"content": ""}, usage=usage(1)),
        chunk({"content": ""}, usage=usage(1)),
        chunk({"content": "x"}, usage=usage(3)),
    )
    assert result.kinds == [ROLE, EMPTY, USAGE, TEXT]
    assert result.tokens == [0, 1, 0, 2]


def test_a_trailing_usage_chunk_with_an_empty_delta_is_usage() -> None:
    result = read(chunk({"content": "x"}, "stop"), chunk({"role": "assistant", "content": ""}, usage=usage(1)))
    assert result.kinds == [TEXT, USAGE]


def test_token_ids_count_tokens() -> None:
    def with_ids(text: str, ids: Any) -> str:
        return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "token_ids": ids}]})

    result = read(
        with_ids("a", [7]), with_ids("bcd", [1, 2, 3]), with_ids("", []), with_ids("e", None), with_ids("f", 3)
    )
    assert result.tokens == [1, 3, 0, None, None]


@pytest.mark.parametrize(
    ("reported", "read_as"),
    [
        ({"prompt_tokens": 7}, Usage(7, None, None, None)),
        ({"completion_tokens": 3}, Usage(None, None, 3, None)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, None, 0, None)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(7, 0, None, None)),
        ({"prompt_tokens": 7, "prompt_tokens_details": None}, Usage(7, None, None, None)),
        ({"prompt_tokens": 7, "prompt_cache_hit_tokens": 4}, Usage(7, 4, None, None)),
        ({"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 2}}, Usage(None, None, 3, 2)),
        ({"completion_tokens": 3, "reasoning_tokens": 2}, Usage(None, None, 3, 2)),
        ({"input_tokens": 7, "output_tokens": 3}, Usage(7, None, 3, None)),
        ({"prompt_tokens": "7", "completion_tokens": 3.5, "total_tokens": True}, None),
        ({"prompt_tokens": -1, "completion_tokens": 2**31}, None),
        ({"prompt_tokens": True, "completion_tokens": 10**30}, None),
    ],
)
def test_usage_fields(reported: dict[str, Any], read_as: Usage | None) -> None:
    result = read(json.dumps({"choices": [], "usage": reported}))
    assert result.decoder.usage == read_as
    assert result.kinds == [USAGE if read_as else COMMENT]


def test_later_usage_completes_earlier() -> None:
    first = {**usage(1), "prompt_tokens_details": {"cached_tokens": 4}}
    result = read(chunk({"content": "a"}, usage=first), json.dumps({"choices": [], "usage": usage(2)}))
    assert result.decoder.usage == Usage(5, 4, 2, None)


ROLE_EMPTY = {"role": "assistant", "content": ""}
LOGPROBS = {"content": [{"token": "", "logprob": -0.1}]}


def shape(text: str | None, n: int | None = None, finish: str | None = None, **choice: Any) -> str:
    """A chunk of this text, with a count so far and other fields of its choice."""
    counted = {} if n is None else {"usage": usage(n)}
    delta = {} if text is None else {"content": text}
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}], **counted})


def counted_role(n: int) -> str:
    return chunk(ROLE_EMPTY, usage=usage(n))


@pytest.mark.parametrize(
    ("objects", "kinds", "tokens"),
    [
        # Nothing says that it carried a token.
        ([shape(""), shape("a")], [EMPTY, TEXT], [None, None]),
        ([shape("", logprobs=None), shape("", logprobs={"content": []})], [EMPTY, EMPTY], [None, None]),
        ([shape("", token_ids=None), shape("", token_ids=[])], [EMPTY, EMPTY], [None, 0]),
        ([shape("", 0), shape("a", 1)], [EMPTY, TEXT], [0, 1]),
        # A count that rose with it, token ids, log probabilities.
        ([counted_role(0), shape("", 1), shape("a", 2)], [ROLE, EMPTY, TEXT], [0, 1, 1]),
        ([shape("", token_ids=[7]), shape("", token_ids=[8, 9])], [EMPTY, EMPTY], [1, 2]),
        ([shape("", logprobs=LOGPROBS), shape("a", logprobs=LOGPROBS)], [EMPTY, TEXT], [1, 1]),
        ([shape("", logprobs={"tokens": ["", ""], "token_logprobs": [0, 0]})], [EMPTY], [2]),
        # With the finish or the role as well.
        ([shape("a", 1), shape("", 2, "stop")], [TEXT, EMPTY], [1, 1]),
        ([shape("a", 1), shape(None, 1, "stop")], [TEXT, USAGE], [1, 0]),
        ([shape("a"), shape("", finish="stop", token_ids=[2])], [TEXT, EMPTY], [None, 1]),
        ([chunk(ROLE_EMPTY), shape("", 3, "length")], [ROLE, EMPTY], [None, 3]),
        # White space is output.
        ([shape(" "), shape("\n\n"), shape("\u200b")], [TEXT, TEXT, TEXT], [None] * 3),
        # A count that comes with the role tells of the chunk that follows...
        ([counted_role(1), shape("a", 1), shape("b", 2)], [ROLE, TEXT, TEXT], [None, 1, 1]),
        # ... unless that has one of its own: see test_a_role_that_carried_tokens.
        ([counted_role(1), shape("a", 2)], [ROLE, TEXT], [None, 1]),
        # Zeros beside what is shown count nothing, and what follows them nothing sure.
        (
            [counted_role(0), shape("a", 0), shape("b", 0), shape(None, 2, "stop")],
            [ROLE, TEXT, TEXT, USAGE],
            [0] + [None] * 3,
        ),
        ([shape("a", 1), shape("b", 1), shape("c", 3), shape("", 4)], [TEXT, TEXT, TEXT, USAGE], [1, None, None, None]),
        ([shape("a", 0), shape("b", 1), shape(None, 2, "stop")], [TEXT, TEXT, USAGE], [None] * 3),
        ([shape("a", token_ids=[])], [TEXT], [None]),
        # Only a count that stood right before says what came since.
        ([shape("a"), shape("", 2), shape("", 3)], [TEXT, USAGE, EMPTY], [None, None, 1]),
    ],
)
def test_what_shows_nothing_is_counted_on_evidence(
    objects: list[str], kinds: list[ChunkKind], tokens: list[int | None]
) -> None:
    result = read(*objects)
    assert (result.kinds, result.tokens, result.decoder.role_tokens > 0) == (
        kinds,
        tokens,
        objects == [counted_role(1), shape("a", 2)],
    )


@pytest.mark.parametrize(
    ("objects", "role_tokens"),
    [
        ([counted_role(1), shape("a", 2), shape("b", 3)], 1),
        ([counted_role(2), shape("", 3)], 2),
        ([counted_role(1), shape(None, 1, "stop")], 1),
        ([counted_role(1), shape("a", 1), shape("b", 2)], 0),
        ([counted_role(1), shape("a"), shape("b", 3)], 0),
        ([counted_role(0), shape("a", 1)], 0),
    ],
)
def test_a_role_that_carried_tokens(objects: list[str], role_tokens: int) -> None:
    assert read(*objects).decoder.role_tokens == role_tokens


@pytest.mark.parametrize(
    "where",
    [
        lambda counts: {"usage": counts},
        lambda counts: {"x_groq": {"id": "r", "usage": counts}},
        lambda counts: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": counts}]},
        lambda counts: {
            "usage": None,
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": counts}],
        },
    ],
)
@pytest.mark.parametrize("more", [{}, {"prompt_tokens_details": None}, {"input_tokens": 0, "output_tokens": 0}])
def test_where_usage_stands(where: Any, more: dict[str, Any]) -> None:
    ends = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]} | where(usage(2, 7) | more)
    result = read(chunk({"content": "a"}), chunk({"content": "b"}), json.dumps(ends))
    assert (result.decoder.usage, result.kinds) == (Usage(7, None, 2, None), [TEXT, TEXT, USAGE])


COUNTS = {"prompt_tokens": 100, "completion_tokens": 9}
CACHED = Usage(100, 64, 9, None)


@pytest.mark.parametrize(
    ("reported", "read_as"),
    [
        (COUNTS | {"prompt_tokens_details": {"cached_tokens": 64}}, CACHED),
        (COUNTS | {"prompt_tokens_details": {"cached_tokens": 64, "text_tokens": 0}, "input_tokens": 0}, CACHED),
        (COUNTS | {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, CACHED),
        (COUNTS | {"cached_tokens": 64}, CACHED),
        (COUNTS | {"cache_read_input_tokens": 64, "cache_creation_input_tokens": 0}, CACHED),
        (COUNTS | {"prompt_tokens_details": {"cached_tokens": 0}, "cache_read_input_tokens": 64}, CACHED),
        ({"input_tokens": 100, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 64}}, CACHED),
        (
            {"prompt_tokens": 0, "completion_tokens": 0, "input_tokens": 100, "output_tokens": 9},
            Usage(100, None, 9, None),
        ),
        ({"promptTokens": 100, "completionTokens": 9, "cachedInputTokens": 64}, CACHED),
        (COUNTS | {"prompt_tokens_details": {"cached_tokens": None}}, Usage(100, None, 9, None)),
        (COUNTS | {"prompt_tokens_details": [64], "cached_tokens": "64"}, Usage(100, None, 9, None)),
        (COUNTS | {"cached_tokens": 0}, Usage(100, 0, 9, None)),
        (COUNTS | {"output_tokens_details": {"reasoning_tokens": 5}}, Usage(100, None, 9, 5)),
        (COUNTS | {"completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 0}}, Usage(100, None, 9, 5)),
        (
            COUNTS | {"reasoning_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 0}},
            Usage(100, None, 9, 5),
        ),
        ({"completion_tokens_details": {"reasoning_tokens": None}, "cached_tokens": -1}, None),
    ],
)
def test_usage_under_every_name(reported: dict[str, Any], read_as: Usage | None) -> None:
    assert read(json.dumps({"choices": [], "usage": reported})).decoder.usage == read_as
    body = json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": reported})
    assert DIALECTS["openai_chat"].decode_body(body.encode()).usage == read_as


def test_zeros_after_a_count_are_no_count() -> None:
    zeros = json.dumps({"choices": [], "usage": usage(0, 0)})
    assert read(chunk({"content": "a"}, "stop", usage=usage(2, 7)), zeros).decoder.usage == Usage(7, None, 2, None)
    assert read(zeros).decoder.usage == Usage(0, None, 0, None)


# Verdicts

ENDLESS = "the stream ended without finish_reason or end mark"
NO_CHOICES = "the stream has no choices: it ends without an answer"


@pytest.mark.parametrize(
    ("objects", "verdict"),
    [
        ([chunk({"content": "a"}, "stop")], None),
        ([chunk({"content": "a"}), "[DONE]"], None),
        ([chunk({"role": "assistant"}), "[DONE]"], None),
        ([chunk({}), "[DONE]"], None),
        ([completion(""), "[DONE]"], None),
        ([chunk({"content": "a"})], ENDLESS),
        ([], ENDLESS),
        (["[DONE]"], NO_CHOICES),
        (["{}", "[DONE]"], NO_CHOICES),
        (['{"choices":[]}', "[DONE]"], NO_CHOICES),
        (['{"choices":null}', '"[DONE]"'], NO_CHOICES),
        ([json.dumps({"choices": [], "usage": usage(0)}), "[DONE]"], NO_CHOICES),
        ([json.dumps({"choices": [], "usage": usage(5)}), "[DONE]"], NO_CHOICES),
        (['{"error":"gone"}', "[DONE]"], "gone"),
    ],
)
def test_what_is_wrong_with_a_stream(objects: list[str], verdict: str | None) -> None:
    assert read(*objects).decoder.verdict() == verdict
    assert read_stream([b": ping\n\n", sse(*objects)]).decoder.verdict() == verdict


# Several choices


def test_two_choices_in_one_event() -> None:
    def both(a: dict[str, Any], b: dict[str, Any]) -> str:
        return json.dumps({"choices": [{"index": 1, **a}, {"index": 0, **b}]})

    result = read(
        both({"delta": {"role": "assistant"}}, {"delta": {"role": "assistant"}}),
        both({"delta": {"content": "one"}}, {"delta": {"content": "zero"}}),
        both({"delta": {"content": ""}, "finish_reason": "length"}, {"delta": {"content": "!"}}),
        both({"delta": {"content": ""}, "finish_reason": "length"}, {"delta": {"reasoning": "hm"}}),
        both({"delta": {}, "finish_reason": "length"}, {"delta": {}, "finish_reason": "stop"}),
    )
    assert result.kinds == [ROLE, TEXT, TEXT, REASONING, FINISH]
    assert [c.text for c in result.chunks] == ["", "zeroone", "!", "hm", ""]
    assert result.decoder.finish_reason == "stop"


def test_the_finish_reason_is_that_of_choice_0() -> None:
    other = json.dumps({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]})
    assert read(other).decoder.finish_reason is None
    assert read(other, chunk({}, "stop"), other).decoder.finish_reason == "stop"


def test_each_choice_has_its_own_role() -> None:
    second = json.dumps({"choices": [{"index": 1, "delta": {"role": "assistant", "content": ""}}]})
    assert read(chunk({"content": "a"}), second).kinds == [TEXT, ROLE]


# Errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error":{"message":"boom","type":"server_error","code":500}}', "boom"),
        ('{"error":"boom"}', "boom"),
        ('{"error":{"code":500}}', "500"),
        ('{"error":{"x":1}}', "error without a message"),
        ('{"error":{"error":{"message":"boom"}}}', "boom"),
        ('{"error":true,"message":"boom"}', "boom"),
        ('{"error":{"message":"two\\nlines"}}', "two lines"),
        ('{"object":"error","message":"boom","code":400}', "boom"),
        ('{"type":"error","error":{"type":"overloaded_error","message":"boom"}}', "boom"),
        ('{"detail":"boom"}', "boom"),
        ('{"detail":[{"loc":["body","temperature"],"msg":"not a number"}]}', "body.temperature: not a number"),
        ('{"message":"boom"}', "boom"),
        ('{"errors":[{"message":"a"},{"message":"b"}]}', "a; b"),
        ('{"error":{"message":"boom"},"choices":[{"index":0,"delta":{"content":"x"}}]}', "boom"),
        ('{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"error"}]}', "finish reason error"),
        ('{"choices":[{"delta":{},"finish_reason":"error","error":{"message":"boom"}}]}', "boom"),
        ('{"choices":{"0":{"delta":{"content":"x"}}}}', "choices is dict, not a list"),
        ('{"choices":"x"}', "choices is str, not a list"),
        ('{"choices":[null]}', "a choice is NoneType, not an object"),
        ('{"choices":["x"]}', "a choice is str, not an object"),
        ('{"choices":[{"delta":"x"}]}', "delta is str, not an object"),
        ('{"choices":[{"delta":["x"]}]}', "delta is list, not an object"),
        ('{"choices":[{"delta":{"content":5}}]}', "content is int, not text"),
        ('{"choices":[{"delta":{"content":true}}]}', "content is bool, not text"),
        ('{"choices":[{"text":5.5}]}', "content is float, not text"),
        ("[]", "data is a JSON list, not an object"),
        ("null", "data is a JSON NoneType, not an object"),
        ("7", "data is a JSON int, not an object"),
    ],
)
def test_errors_in_a_200_stream(text: str, message: str) -> None:
    result = read(chunk({"content": "a"}), text, chunk({"content": "b"}, "stop"))
    assert result.chunks == [Chunk(TEXT, "a", None), Chunk(ERROR, "", None), Chunk(TEXT, "b", None)]
    assert result.decoder.error == message
    assert result.decoder.finish_reason == "stop"  # the decoder goes on


@pytest.mark.parametrize(
    "text", ['{"choices":', "{'choices':[]}", "<html>", "data", "[DONE", '{"a":1}{"b":2}', "\ufffd"]
)
def test_data_that_is_not_json_is_an_error(text: str) -> None:
    result = read(text, chunk({"content": "b"}))
    assert result.kinds == [ERROR, TEXT]
    assert result.decoder.error is not None
    assert result.decoder.error.startswith("data that isn't JSON")


def test_an_error_event_is_an_error_whatever_it_holds() -> None:
    for data, message in (
        (b'{"message":"boom"}', "boom"),
        (b"boom", "boom"),
        (b"", "error event without a message"),
        (chunk({"content": "x"}).encode(), "error without a message"),
    ):
        result = read_stream([b"event: error\ndata: " + data + b"\n\n"])
        assert (result.kinds, result.decoder.error) == ([ERROR], message)


def test_the_first_error_is_kept() -> None:
    assert read('{"error":"one"}', '{"error":"two"}').decoder.error == "one"


def test_an_event_cut_by_the_end_of_the_stream_is_not_read() -> None:
    result = read_stream([sse(chunk({"content": "a"})), b'data: {"choices":[{"del'])
    assert (result.kinds, result.tail) == ([TEXT], b'data: {"choices":[{"del')


# Bytes


def test_characters_split_between_reads_come_out_whole() -> None:
    stream = 'data: {"choices":[{"index":0,"delta":{"content":"é€🙂"}}]}\n\n'.encode()
    for place in range(len(stream)):
        assert read_stream([stream[:place], stream[place:]]).text() == "é€🙂"


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    result = read_stream([b'data: {"choices":[{"delta":{"content":"a\xf0\x9fb"}}]}\n\n'])
    assert (result.text(), result.decoder.error) == ("a\ufffdb", None)


def test_lone_surrogates_can_be_stored() -> None:
    result = read('{"choices":[{"delta":{"content":"a\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude42"}}]}')
    assert (result.kinds, result.text()) == ([TEXT, TEXT], "a\ufffd\ufffd")


def test_json_over_several_data_lines() -> None:
    assert read_stream([b'data: {"choices":\ndata: [{"delta":{"content":"a"}}]}\n\n']).text() == "a"
    assert read_stream([b'data: {"choices":[{"delta":{"content":"a\ndata: b"}}]}\n\n']).text() == "a\nb"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"usage":' + "9" * 5000 + "}", "[" * 900 + "]" * 900]
)
def test_deep_or_huge_json_is_an_error_like_any_other(text: str) -> None:
    result = read(text, chunk({"content": "b"}))
    assert result.kinds == [ERROR, TEXT]


def test_deep_values_inside_a_chunk_are_passed_over() -> None:
    deep = "[" * 900 + "1" + "]" * 900
    tools = f'{{"choices":[{{"delta":{{"tool_calls":[{{"function":{{"arguments":{deep}}}}}]}}}}]}}'
    assert read(tools).chunks == [Chunk(TOOL, "{…}", None)]
    thought = f'{{"choices":[{{"delta":{{"reasoning":{deep},"content":{deep}}}}}]}}'
    assert read(thought).chunks == [Chunk(EMPTY, "", None)]


def test_a_deep_error_is_still_an_error() -> None:
    assert read('{"error":' + "[" * 900 + '"x"' + "]" * 900 + "}").decoder.error == "error without a message"
    assert read('{"error":' + '{"error":' * 900 + '"x"' + "}" * 901).decoder.error == "error without a message"


def test_names_are_cut() -> None:
    result = read(json.dumps({"model": "m" * 999, "id": 5, "choices": [{"delta": {}, "finish_reason": "s" * 999}]}))
    assert result.decoder.response_model == "m" * 200
    assert result.decoder.response_id is None
    assert result.decoder.finish_reason == "s" * 200


def test_both_dialects_read_each_others_form() -> None:
    for dialect in DIALECTS.values():
        decoder = dialect.stream_decoder()
        texts = [decoder.feed(SseEvent(t.encode(), None, False, 0)) for t in (chunk({"content": "a"}), completion("b"))]
        assert texts == [Chunk(TEXT, "a", None), Chunk(TEXT, "b", None)]


def test_kind_is_the_same_with_other_fields_around() -> None:
    assert kind_of({"content": "x"}, None, system_fingerprint=None, service_tier={}, obfuscation="zz") is TEXT
