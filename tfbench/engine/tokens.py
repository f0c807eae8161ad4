"""The engine's tokens: whitespace words, each a function of the prompt's hash and its index in the reply."""

import hashlib
import math
from dataclasses import dataclass

_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
WORDS: tuple[str, ...] = tuple(first + second for first in _SYLLABLES for second in _SYLLABLES)
"""The vocabulary: 4,900 made-up words of four ASCII letters."""
_SPACED = tuple(b" " + word.encode() for word in WORDS)
TOKEN_BYTES = 5
"""Bytes of every token but the first, its space included."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Which words a reply consists of: `key` is 64 bits of the prompt's hash."""

    key: int


def token_source(prompt: bytes) -> TokenSource:
    """The source for a prompt; equal prompts give equal replies."""
    return TokenSource(int.from_bytes(hashlib.sha256(prompt).digest()[:8], "little"))


def token(source: TokenSource, index: int) -> str:
    """Token `index` of a reply; all but the first begin with a space, so that a reply's text splits into its tokens."""
    word = WORDS[mix64(source.key + index) % len(WORDS)]
    return " " + word if index else word


def token_bytes(source: TokenSource, index: int) -> bytes:
    """Token `index` of a reply, not the first, in ASCII."""
    return _SPACED[mix64(source.key + index) % len(_SPACED)]


def tokens_text(source: TokenSource, start: int, stop: int) -> str:
    """The text of tokens `start` to `stop` - 1."""
    if stop - start == 1:
        return token(source, start)
    return "".join([token(source, index) for index in range(start, stop)])


def natural_length(source: TokenSource, mean: float) -> int:
    """Tokens after which a reply ends by itself: geometric on 1, 2, … with this mean (at least 1)."""
    if mean <= 1.0:
        return 1
    uniform = (mix64(source.key ^ _MASK) + 1) / (1 << 64)
    return 1 + int(math.log(uniform) / math.log1p(-1.0 / mean))


def mix64(value: int) -> int:
    """SplitMix64's output function: 64 bits, well mixed even for successive inputs (Steele, Lea & Flood 2014)."""
    value = (value * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
