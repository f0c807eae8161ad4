import statistics

from hypothesis import given
from hypothesis import strategies as st

from tfbench.engine.tokens import WORDS, natural_length, token, token_source, tokens_text


@given(st.binary(), st.integers(0, 50), st.integers(1, 200))
def test_a_text_splits_into_its_tokens(prompt: bytes, start: int, count: int) -> None:
    source = token_source(prompt)
    text = tokens_text(source, start, start + count)
    assert len(text.split()) == count
    assert text == "".join(token(source, index) for index in range(start, start + count))
    assert text.startswith(" ") == (start > 0)


def test_tokens_depend_on_the_prompt_and_the_index_only() -> None:
    one, other = token_source(b"one"), token_source(b"other")
    assert tokens_text(one, 0, 50) == tokens_text(token_source(b"one"), 0, 50)
    assert tokens_text(one, 0, 50) != tokens_text(other, 0, 50)
    assert len({token(one, index) for index in range(1, 201)}) > 150
    # A golden value: replies must not change from one version to the next unnoticed.
    assert tokens_text(one, 0, 4) == "veme bifu liri didi"


def test_words_are_plain() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert all(word.isascii() and word.isalpha() for word in WORDS)


def test_natural_lengths_are_geometric_with_their_mean() -> None:
    lengths = [natural_length(token_source(str(i).encode()), 20.0) for i in range(4000)]
    # sd of a geometric with mean 20 is about 19.5, so the mean of 4000 lies within 5 standard errors, 1.6, of 20
    assert abs(statistics.fmean(lengths) - 20) < 1.6
    assert min(lengths) == 1
    # P(1) = 1/20; standard error sqrt(0.05*0.95/4000) = 0.0034
    assert abs(lengths.count(1) / 4000 - 0.05) < 0.018
    assert natural_length(token_source(b"x"), 1.0) == 1
