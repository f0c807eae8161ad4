"""Bytes of a body straight into the call's decoder, and what came out as plain facts."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.cases import KIND_OF_LETTER, Body, Expected
from tfbench.core.jsonio import sha256_hex
from tfbench.core.kinds import OUTPUT_KINDS, ChunkKind, Outcome
from tfbench.load.call import EXACT, Call, Ending
from tfbench.load.decode import KIND_NAMES, Decoded
from tfbench.load.decode import decode as decode_call
from tfbench.load.feeders import Tick
from tfbench.load.stamps import NO_STAMP

_LETTERS = {name: letter for letter, name in KIND_OF_LETTER.items()}
_OUTPUT = {_LETTERS[kind.value] for kind in OUTPUT_KINDS}
_INT32 = range(2**31)


@dataclass(frozen=True)
class Facts:
    """What was written down about one response. The call and what was decoded from it aren't compared."""

    outcome: str
    kinds: str
    text: str
    finish: str | None
    usage: tuple[int | None, ...] | None
    tokens: tuple[int | None, ...]
    raw: bytes
    error: str = field(compare=False)
    call: Call = field(compare=False, repr=False)
    decoded: Decoded = field(compare=False, repr=False)


def new_call(number: int = 0, request: bytes = b"") -> Call:
    """A call as the loop would make it."""
    tick = Tick(attempt=number, scheduled_ns=1, slot_ns=0, phase="measure", user=-1, task=number)
    return Call(tick, f"request-{number}", request, "0" * 64, "prompt")


def decode(call: Call, dialect: str) -> Facts:
    """The facts of a call that ended."""
    decoded = decode_call(call, dialect)
    usage = tuple(decoded.usage)
    return Facts(
        outcome=decoded.outcome,
        kinds="".join(_LETTERS[KIND_NAMES[code]] for code in decoded.kinds),
        text=decoded.output,
        finish=decoded.finish_reason,
        usage=None if usage == (None,) * 4 else usage,
        tokens=tuple(None if n < 0 else n for n in _ints(decoded.tokens, "i")),
        raw=decoded.raw,
        error=decoded.error,
        call=call,
        decoded=decoded,
    )


def read_body(feeds: Iterable[bytes], body: Body, dialect: str = "openai_chat") -> Facts:
    """A response framed to its end, read in these pieces."""
    call = new_call()
    call.status = body.status
    call.content_type = body.content_type.lower()
    call.content_encoding = body.content_encoding
    now = 1_000
    call.dispatched_ns = call.sent_ns = now
    for data in feeds:
        if data:
            now += 10
            call.first_ns = call.first_ns or now
            call.reads.append((now, NO_STAMP, now - 5, EXACT, data, call.tick.attempt))
    call.end_ns, call.ending = now + 10, Ending.COMPLETE
    return decode(call, dialect)


def _ints(data: bytes, code: str) -> Sequence[int]:
    values: array[Any] = array(code)
    values.frombytes(data)
    return values


def check(facts: Facts, expected: Expected, *, whole: bool = True) -> None:
    """The facts are those expected, all of them; unless `whole`, `raw` need not hold all that it should."""
    assert (facts.outcome, facts.kinds) == (expected.outcome, expected.kinds), facts
    assert facts.text == expected.text
    assert (facts.finish, facts.usage) == (expected.finish, expected.usage), facts
    assert facts.tokens == (expected.tokens or (None,) * len(expected.kinds)), facts
    if expected.raw is None:
        assert facts.raw.strip() == b"", facts.raw[:200]
    elif expected.raw:
        assert facts.raw, facts
        assert not whole or expected.raw in facts.raw, facts.raw[:200]
    assert expected.says.lower() in facts.error.lower(), facts.error
    assert bool(facts.error) == (facts.outcome != "ok"), facts


def check_storable(facts: Facts) -> None:
    """Whatever came in, the facts are ones that the ledger takes, and say no more than is known."""
    decoded, call = facts.decoded, facts.call
    Outcome(decoded.outcome)
    n = len(decoded.kinds)
    assert all(code < len(ChunkKind) for code in decoded.kinds)
    assert len(decoded.exact) == n
    assert len(decoded.user) * 2 == len(decoded.stamps) == len(decoded.lower) * 2 == 16 * n
    tokens = _ints(decoded.tokens, "i")
    assert len(tokens) == n
    assert all(number >= -1 for number in tokens)
    user, lower = _ints(decoded.user, "q"), _ints(decoded.lower, "q")
    assert list(user) == sorted(user), "chunks are in the order of their reads"
    assert all(low <= at for low, at in zip(lower, user, strict=True))
    assert all(number is None or number in _INT32 for number in decoded.usage)
    assert 0 <= call.status < 2**15
    assert len(decoded.error) <= 300
    assert bool(decoded.error) == (decoded.outcome != "ok"), decoded
    for text in (decoded.error, decoded.finish_reason, decoded.output):
        assert text is None or text.encode().decode() == text
    has_output = bool(_OUTPUT & set(facts.kinds))
    assert decoded.output_sha256 == (sha256_hex(facts.text.encode()) if has_output else None)
    assert has_output or not facts.text
    if facts.outcome == Outcome.OK:
        assert "x" not in facts.kinds
        assert 200 <= call.status < 300
    if facts.outcome == Outcome.STREAM_ERROR and "x" in facts.kinds:
        assert facts.raw, facts
