from typing import Any

import orjson
import pytest

from tfbench.engine import EngineConfig
from tfbench.engine.api import ApiError, Submission, parse_submission

CONFIG = EngineConfig(model="tiny", max_model_len=100, default_max_tokens=16)
MESSAGES = [{"role": "system", "content": "be  brief"}, {"role": "user", "content": "one two\nthree"}]


def chat(config: EngineConfig = CONFIG, **body: Any) -> Submission:
    return parse_submission(orjson.dumps({"model": "tiny", "messages": MESSAGES} | body), config, chat=True)


def text(config: EngineConfig = CONFIG, **body: Any) -> Submission:
    return parse_submission(orjson.dumps({"model": "tiny", "prompt": "one two three"} | body), config, chat=False)


def test_tokens_are_words_over_all_messages() -> None:
    assert chat().prompt_tokens == 5
    assert text().prompt_tokens == 3
    assert text(prompt=[5, 6, 7, 8]).prompt_tokens == 4
    assert text(prompt=["a b"]).prompt_tokens == 2
    assert text(prompt=[[1, 2]]).prompt_tokens == 2
    parts = [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]
    assert (
        chat(messages=[{"role": "user", "content": parts}, {"role": "assistant", "content": None}]).prompt_tokens == 3
    )


def test_limits_and_defaults() -> None:
    assert (chat().output_tokens, chat().finish_reason) == (16, "length")
    assert chat(max_tokens=7).output_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=8).output_tokens == 8
    assert chat(max_tokens=None).output_tokens == 16
    assert chat(max_tokens=95).output_tokens == 95
    assert text(EngineConfig(model="tiny", max_model_len=10)).output_tokens == 7
    assert chat(model=None).model == "tiny"


def test_the_same_prompt_has_the_same_source() -> None:
    assert chat().source == chat(max_tokens=3, stream=True).source
    assert chat().source != chat(messages=MESSAGES[1:]).source


def test_replies_that_end_by_themselves_unless_told_not_to() -> None:
    config = EngineConfig(model="tiny", mean_output_tokens=4.0)
    prompts = [f"prompt {i}" for i in range(50)]
    natural = [text(config, prompt=prompt, max_tokens=6) for prompt in prompts]
    assert {s.finish_reason for s in natural} == {"stop", "length"}
    assert all(s.output_tokens == 6 for s in natural if s.finish_reason == "length")
    forced = [text(config, prompt=prompt, max_tokens=6, ignore_eos=True) for prompt in prompts]
    assert {(s.output_tokens, s.finish_reason) for s in forced} == {(6, "length")}


def test_stream_options() -> None:
    plain = chat(stream=True)
    assert (plain.stream, plain.include_usage, plain.continuous_usage) == (True, False, False)
    usage = chat(stream=True, stream_options={"include_usage": True})
    assert (usage.include_usage, usage.continuous_usage) == (True, False)
    both = chat(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert both.continuous_usage
    # vLLM's rule: continuous usage only along with usage
    assert not chat(stream=True, stream_options={"continuous_usage_stats": True}).continuous_usage


def test_sampling_parameters_of_the_right_type_change_nothing() -> None:
    body = {"temperature": 0.7, "top_p": 1, "seed": 4, "stop": ["x"], "n": 1, "user": "me", "unheard_of": [1]}
    assert chat(**body) == chat()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": "10"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"seed": "x"}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"model": 3}, "model"),
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [3]}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages"),
    ],
)
def test_wrong_parameters_are_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat(**body)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert orjson.loads(caught.value.body())["error"]["message"] == caught.value.message


@pytest.mark.parametrize("prompt", [None, "", 3, [], ["a", "b"], [1, "b"], [True], {"a": 1}])
def test_wrong_text_prompts(prompt: object) -> None:
    with pytest.raises(ApiError) as caught:
        text(prompt=prompt)
    assert (caught.value.status, caught.value.param) == (400, "prompt")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b'{"model": NaN}', b"\xff"])
def test_bodies_that_are_no_json_object(raw: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_submission(raw, CONFIG, chat=True)
    assert caught.value.status == 400


def test_a_model_it_does_not_have() -> None:
    with pytest.raises(ApiError) as caught:
        chat(model="no-such-model")
    assert (caught.value.status, caught.value.param) == (404, "model")
    assert "no-such-model" in caught.value.message and "tiny" in caught.value.message


@pytest.mark.parametrize(("words", "limit", "total"), [(90, 11, 101), (100, None, 101), (150, 1, 151), (150, 50, 200)])
def test_too_long_requests_are_told_both_lengths(words: int, limit: int | None, total: int) -> None:
    with pytest.raises(ApiError) as caught:
        text(prompt="w " * words, max_tokens=limit)
    assert caught.value.status == 400
    assert "maximum context length is 100 tokens" in caught.value.message
    assert f"{total} tokens ({words} in the prompt" in caught.value.message


def test_the_longest_request_that_fits_is_taken() -> None:
    assert text(prompt="w " * 90, max_tokens=10).output_tokens == 10
