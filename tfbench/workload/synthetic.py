"""Synthetic prompts: each a pure function of the run's salt and its own index."""

import hashlib
import struct
import sys
from array import array
from dataclasses import dataclass
from operator import itemgetter

from tfbench.manifest import Manifest, RunPlan
from tfbench.manifest.limits import MAX_TOKENS
from tfbench.manifest.quantiles import Sampler, sampler
from tfbench.workload.words import WORDS

_BITS = 10
_TAG_WORDS = 4
_TAG_SPACE = 1 << (_BITS * _TAG_WORDS)
_TAG_STRIDE = 0x9E3779B97F
"""Odd, hence i → i·stride mod 2^40 never repeats within 2^40 items; near the golden ratio, hence it spreads."""
_TITLES = tuple(word.capitalize() for word in WORDS)
# The list repeated up to 65,536 entries lets two random bytes be an index without masking them.
_TABLE = WORDS * (65_536 >> _BITS)


@dataclass(frozen=True, slots=True)
class Item:
    """One request to be sent. `input_tokens` is the target, one per word; the server's usage tells the true count."""

    prompt: str
    input_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    """The items of one run, by index, in any order, on any worker; picklable.

    A prompt of n tokens is n words: a first word made of four joined list words ("StoneRiverLampGold"), different in
    every item of a run and, through the salt, in every run; then n − 1 random list words. So no two prompts, and no
    two runs, share a prefix that a server could have cached. In SmolLM2's vocabulary the first word takes 6 tokens on
    average (4 to 10) and every other word one; a chat template adds its own.
    """

    salt: bytes
    tag_start: int
    inputs: Sampler
    outputs: Sampler | None
    pairs: tuple[tuple[int, int], ...]
    cap: int | None

    def item(self, i: int) -> Item:
        """Item `i` (from 0)."""
        draw = hashlib.shake_128(b"%s/%d" % (self.salt, i))
        head_in, head_out = struct.unpack("<QQ", draw.digest(16))
        u_in, u_out = ((head_in >> 11) + 0.5) / 2**53, ((head_out >> 11) + 0.5) / 2**53
        if self.outputs is None:
            n_in, n_out = self.pairs[self.inputs.index(u_in)]
        else:
            n_in, n_out = self.inputs.whole_at(u_in), self.outputs.whole_at(u_out)
        prompt = " ".join((self._tag(i), *_words(draw.digest(14 + 2 * n_in)[16:])))
        return Item(prompt, n_in, n_out if self.cap is None else min(n_out, self.cap))

    def _tag(self, i: int) -> str:
        number = (self.tag_start + i * _TAG_STRIDE) % _TAG_SPACE
        return (
            _TITLES[number & 1023]
            + _TITLES[number >> 10 & 1023]
            + _TITLES[number >> 20 & 1023]
            + _TITLES[number >> 30 & 1023]
        )

    def sha256(self, n: int) -> str:
        """Hex sha256 over the first `n` items' prompts, each preceded by its length in bytes (little-endian int64)."""
        digest = hashlib.sha256()
        for i in range(n):
            prompt = self.item(i).prompt.encode()
            digest.update(struct.pack("<q", len(prompt)))
            digest.update(prompt)
        return digest.hexdigest()


def _words(random: bytes) -> tuple[str, ...]:
    """A list word for every two bytes. itemgetter is the fastest way Python has: 512 words in some 8 µs."""
    numbers = array("H", random)
    if sys.byteorder == "big":
        numbers.byteswap()
    if len(numbers) < 2:
        return tuple(_TABLE[number] for number in numbers)
    words: tuple[str, ...] = itemgetter(*numbers)(_TABLE)
    return words


def build_workload(manifest: Manifest, plan: RunPlan) -> Workload:
    """The workload of one run; the same for every arm and system, since it depends on the plan's salt alone."""
    source, answers = manifest.workload.input_tokens, manifest.workload.output_tokens
    pairs = () if isinstance(source, int) else getattr(source, "pairs", None) or ()
    salt = plan.salt.encode()
    return Workload(
        salt=salt,
        tag_start=int.from_bytes(hashlib.sha256(b"tag/" + salt).digest()[:5], "little"),
        inputs=sampler(source, 1, MAX_TOKENS),
        outputs=None if answers is None else sampler(answers, 1, MAX_TOKENS),
        pairs=pairs,
        cap=manifest.sampling.max_tokens,
    )
