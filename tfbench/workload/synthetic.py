"""Synthetic prompts: each a pure function of the run's salt and its own index."""

import hashlib
import itertools
import struct
import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from tfbench.manifest import Manifest, RunPlan, TrafficClass
from tfbench.manifest import workload as manifest_workload
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


class Item(NamedTuple):
    """One request to be sent.

    `input_tokens` is the target, one per word; the server's usage tells the true count.
    The shared prefix is in it. `class_name`, `tenant` and `lora` are its traffic class's (None without); `cancel`: the
    plan cuts it short.
    """

    prompt: str
    input_tokens: int
    max_tokens: int
    class_name: str | None = None
    tenant: str | None = None
    lora: str | None = None
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """One traffic class: its labels and its laws of lengths.

    Without `outputs` a draw from `inputs` picks one of `pairs`.
    """

    name: str | None
    tenant: str | None
    lora: str | None
    inputs: Sampler
    outputs: Sampler | None
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """The items of one run, by index, in any order, on any worker; picklable.

    A prompt of n tokens is n words: a first word made of four joined list words ("StoneRiverLampGold"), different in
    every item of a run and, through the salts, in every run; then n − 1 random list words. So no two prompts, and no
    two runs, share a prefix that a server could have cached. In SmolLM2's vocabulary the first word takes 6 tokens on
    average (4 to 10) and every other word one; a chat template adds its own.

    `salt` is the run's and decides lengths, classes and cancellations; `words_salt` has the study's own in it too, and
    decides nothing but the words.

    With `prefix_words` every prompt begins with the same so many words, made of that salt alone: shared by the prompts
    of a run and by no other run.

    `kinds` are the traffic classes (one without a name where the manifest has none), drawn by `shares`, their summed
    shares. A share `cancel_share` of the items is to be cancelled, whatever their class.
    """

    salt: bytes
    words_salt: bytes
    tag_start: int
    kinds: tuple[Kind, ...]
    shares: tuple[float, ...]
    cancel_share: float
    cap: int | None
    prefix: str = ""
    prefix_words: int = 0

    def item(self, i: int, *, text: bool = True) -> Item:
        """Item `i` (from 0); without `text` its prompt is "", and it is made six times faster."""
        kind, cancel = self.kinds[0], False
        if len(self.kinds) > 1 or self.cancel_share > 0:
            u_kind, u_cancel = self._mix(i)
            kind = self.kinds[min(bisect_right(self.shares, u_kind * self.shares[-1]), len(self.kinds) - 1)]
            cancel = u_cancel < self.cancel_share
        draw = hashlib.shake_128(b"%s/%d" % (self.salt, i))
        head_in, head_out = struct.unpack("<QQ", draw.digest(16))
        u_in, u_out = ((head_in >> 11) + 0.5) / 2**53, ((head_out >> 11) + 0.5) / 2**53
        if kind.outputs is None:
            n_in, n_out = kind.pairs[kind.inputs.index(u_in)]
        else:
            n_in, n_out = kind.inputs.whole_at(u_in), kind.outputs.whole_at(u_out)
        prompt = ""
        if text:
            if self.words_salt != self.salt:
                draw = hashlib.shake_128(b"%s/%d" % (self.words_salt, i))
            prompt = self.prefix + " ".join((self._tag(i), *_words(draw.digest(14 + 2 * n_in)[16:])))
        n_out = n_out if self.cap is None else min(n_out, self.cap)
        return Item(prompt, self.prefix_words + n_in, n_out, kind.name, kind.tenant, kind.lora, cancel)

    def cancelled(self, i: int) -> bool:
        """Whether item `i` is to be cancelled: `item(i).cancel` without making the prompt."""
        return self.cancel_share > 0 and self._mix(i)[1] < self.cancel_share

    def _mix(self, i: int) -> tuple[float, float]:
        """Two uniform numbers of item `i`, for its class and its cancellation: a draw of its own, so that neither
        changes any prompt."""
        head = hashlib.blake2b(b"mix/%s/%d" % (self.salt, i), digest_size=16).digest()
        one, two = struct.unpack("<QQ", head)
        return ((one >> 11) + 0.5) / 2**53, ((two >> 11) + 0.5) / 2**53

    def _tag(self, i: int) -> str:
        return _title((self.tag_start + i * _TAG_STRIDE) % _TAG_SPACE)

    def sha256(self, n: int) -> str:
        """Hex sha256 over the first `n` items' prompts, each preceded by its length in bytes (little-endian int64)."""
        digest = hashlib.sha256()
        for i in range(n):
            prompt = self.item(i).prompt.encode()
            digest.update(struct.pack("<q", len(prompt)))
            digest.update(prompt)
        return digest.hexdigest()


def _title(number: int) -> str:
    """The joined word that the lowest 40 bits of `number` stand for."""
    return (
        _TITLES[number & 1023]
        + _TITLES[number >> 10 & 1023]
        + _TITLES[number >> 20 & 1023]
        + _TITLES[number >> 30 & 1023]
    )


def _prefix(salt: bytes, n: int) -> str:
    """The `n` words that all prompts of a run begin with, and a space; as a prompt of that length would look."""
    if n == 0:
        return ""
    draw = hashlib.shake_128(b"prefix/" + salt).digest(5 + 2 * (n - 1))
    return " ".join((_title(int.from_bytes(draw[:5], "little")), *_words(draw[5:]))) + " "


def _words(random: bytes) -> tuple[str, ...]:
    """A list word for every two bytes. itemgetter is the fastest way Python has: 512 words in some 8 µs."""
    numbers = array("H", random)
    if sys.byteorder == "big":
        numbers.byteswap()
    if len(numbers) < 2:
        return tuple(_TABLE[number] for number in numbers)
    words: tuple[str, ...] = itemgetter(*numbers)(_TABLE)
    return words


def build_workload(manifest: Manifest, plan: RunPlan, study_salt: str | None = None) -> Workload:
    """The workload of one run; the same for every arm and system, since it depends on the salts alone.

    `study_salt`: what the study mixes into the words; None takes the manifest's, or none.
    """
    workload, cancel = manifest.workload, manifest.load.cancel
    salt = plan.salt.encode()
    mixed = (manifest.load.salt or "") if study_salt is None else study_salt
    words = hashlib.sha256(b"words/%s/%s" % (salt, mixed.encode())).hexdigest()[:16].encode() if mixed else salt
    return Workload(
        salt=salt,
        words_salt=words,
        tag_start=int.from_bytes(hashlib.sha256(b"tag/" + words).digest()[:5], "little"),
        kinds=tuple(_kind(workload, one) for one in workload.classes) or (_kind(workload, None),),
        shares=tuple(itertools.accumulate(one.share for one in workload.classes)) or (1.0,),
        cancel_share=0.0 if cancel is None else cancel.share,
        cap=manifest.sampling.max_tokens,
        prefix=_prefix(words, workload.shared_prefix_tokens),
        prefix_words=workload.shared_prefix_tokens,
    )


def _kind(workload: manifest_workload.Workload, one: TrafficClass | None) -> Kind:
    source, answers = workload.input_tokens, workload.output_tokens
    if one is not None and one.input_tokens is not None:
        source = one.input_tokens
    if one is not None and one.output_tokens is not None:
        answers = one.output_tokens
    pairs = () if isinstance(source, int) else getattr(source, "pairs", None) or ()
    return Kind(
        name=None if one is None else one.name,
        tenant=None if one is None else one.tenant,
        lora=None if one is None else one.lora,
        inputs=sampler(source, 1, MAX_TOKENS),
        # Pairs carry the answers too, also where the workload's own default of output_tokens stands beside a class.
        outputs=None if pairs or answers is None else sampler(answers, 1, MAX_TOKENS),
        pairs=pairs,
    )
