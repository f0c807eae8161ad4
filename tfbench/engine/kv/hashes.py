"""Names of blocks: each a 64-bit hash of its contents and of everything before it, so that equal means reusable."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b


def chain(contents: Iterable[bytes], extra: Iterable[str] = ()) -> tuple[int, ...]:
    """The hashes of successive blocks with these contents.

    `extra` goes into all of them: a LoRA's id, a tenant's salt. Blocks are equal only where those are equal too, in
    the same order.
    """
    parent = blake2b(digest_size=8)
    for part in extra:
        encoded = part.encode()
        parent.update(len(encoded).to_bytes(4, "little") + encoded)
    digest = parent.digest()
    hashes: list[int] = []
    for content in contents:
        digest = blake2b(digest + content, digest_size=8).digest()
        hashes.append(int.from_bytes(digest, "little"))
    return tuple(hashes)


def segment_blocks(
    segments: Iterable[tuple[str, int]], block_tokens: int, extra: Iterable[str] = ()
) -> tuple[int, ...]:
    """The hashes of the full blocks of a prompt that is made of segments, each a (name, tokens).

    For prompts known by their parts instead of their words: segments of one name have the same tokens, up to the
    shorter one's length; a system prompt of 1,000 tokens and a question: [("system", 1000), ("question 7", 20)].
    """
    return chain(_contents(segments, block_tokens), extra)


def _contents(segments: Iterable[tuple[str, int]], block_tokens: int) -> Iterator[bytes]:
    """What each full block holds, written as the parts of segments in it."""
    parts: list[str] = []
    room = block_tokens
    for name, tokens in segments:
        done = 0
        while done < tokens:
            taken = min(room, tokens - done)
            parts.append(f"{name!r}:{done}+{taken}")
            done += taken
            room -= taken
            if room == 0:
                yield "|".join(parts).encode()
                parts.clear()
                room = block_tokens
