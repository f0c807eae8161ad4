"""Misbehaviour on demand: how a reply goes wrong, asked for by a request's header or by shares in the config. Pure.

An act is written `kind; name=value, name=value`, as in `stall; after=3, s=2`: one grammar for the header
`X-Tfbench-Misbehave` and for the keys of `Misbehaviour.shares`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from tfbench.core.errors import UsageError
from tfbench.engine.tokens import mix64

MISBEHAVE_HEADER = "X-Tfbench-Misbehave"
_MOST_SECONDS = 86_400.0
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+")


class Kind(StrEnum):
    """What goes wrong."""

    ROLE_ONLY = "role_only"
    TOKENS_PER_CHUNK = "tokens_per_chunk"
    NO_USAGE = "no_usage"
    ABORT = "abort"
    STALL = "stall"
    STREAM_ERROR = "stream_error"
    OPEN_END = "open_end"
    CONTENT_TYPE = "content_type"
    SLOW_HEADERS = "slow_headers"
    JSON_ERROR = "json_error"
    RATE_LIMIT = "rate_limit"
    HTTP_ERROR = "http_error"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Act:
    """One misbehaviour: its kind and its parameters, each None where the kind has none of that name.

    after        text chunks that leave before it happens; fewer where the reply has no more than that, so that it
                 always happens before the last one. None (`reset` only): before a status
    s            seconds it lasts
    k            tokens in each chunk
    retry_after  whole seconds, sent as Retry-After
    burst        successive requests that it befalls
    status       HTTP status
    type         Content-Type
    """

    kind: Kind
    after: int | None = None
    s: float | None = None
    k: int | None = None
    retry_after: int | None = None
    burst: int | None = None
    status: int | None = None
    type: str | None = None

    def __str__(self) -> str:
        given = ((f.name, getattr(self, f.name)) for f in fields(self)[1:])
        parameters = ", ".join(f"{name}={_shown(value)}" for name, value in given if value is not None)
        return f"{self.kind}; {parameters}" if parameters else str(self.kind)

    @property
    def refuses(self) -> bool:
        """Whether the request never comes to be computed."""
        return self.kind in _REFUSALS or (self.kind is Kind.RESET and self.after is None)

    @property
    def strikes(self) -> bool:
        """Whether something happens once so much of a stream is written."""
        return self.after is not None or self.kind is Kind.OPEN_END

    @property
    def needs_chat(self) -> bool:
        """Whether only a chat reply can go wrong in this way."""
        return self.kind is Kind.ROLE_ONLY

    def fits(self, *, chat: bool, stream: bool) -> bool:
        """Whether a reply of this sort can go wrong in this way."""
        needs_stream = self.kind in _STREAM_KINDS or self.after is not None
        return (stream or not needs_stream) and (chat or not self.needs_chat)


_DEFAULTS: Mapping[Kind, Mapping[str, Any]] = {
    Kind.ROLE_ONLY: {},
    Kind.TOKENS_PER_CHUNK: {"k": 4},
    Kind.NO_USAGE: {},
    Kind.ABORT: {"after": 3},
    Kind.STALL: {"after": 3, "s": 1.0},
    Kind.STREAM_ERROR: {"after": 3},
    Kind.OPEN_END: {"s": 60.0},
    Kind.CONTENT_TYPE: {"type": "text/html"},
    Kind.SLOW_HEADERS: {"s": 1.0},
    Kind.JSON_ERROR: {},
    Kind.RATE_LIMIT: {"retry_after": 1, "burst": 1},
    Kind.HTTP_ERROR: {"status": 500},
    Kind.RESET: {"after": None},
}
_REFUSALS = frozenset({Kind.JSON_ERROR, Kind.RATE_LIMIT, Kind.HTTP_ERROR})
_STREAM_KINDS = frozenset({Kind.ROLE_ONLY, Kind.TOKENS_PER_CHUNK, Kind.OPEN_END})


def _shown(value: object) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _whole(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise ValueError(f"a whole number from {least} to {most}")
    return int(text)


def _seconds(text: str) -> float:
    value = float(text) if re.fullmatch(r"\d+(\.\d{1,9})?", text, re.ASCII) else math.nan
    if not value <= _MOST_SECONDS:
        raise ValueError(f"seconds from 0 to {_MOST_SECONDS:g}")
    return value


def _media_type(text: str) -> str:
    if not _MEDIA_TYPE.fullmatch(text):
        raise ValueError("a media type such as text/html")
    return text


_READERS = {
    "after": lambda text: _whole(text, 0, 1_000_000),
    "s": _seconds,
    "k": lambda text: _whole(text, 1, 1_000_000),
    "retry_after": lambda text: _whole(text, 0, 86_400),
    "burst": lambda text: _whole(text, 1, 1_000_000),
    "status": lambda text: _whole(text, 400, 599),
    "type": _media_type,
}


def parse_act(text: str) -> Act:
    """The act that `text` writes down; what it leaves out has its default. Raises UsageError naming what is wrong."""
    name, separator, rest = text.partition(";")
    name = name.strip()
    try:
        kind = Kind(name)
    except ValueError:
        raise UsageError(f"misbehaviour {name!r}: no such kind; there are {', '.join(Kind)}") from None
    values = dict(_DEFAULTS[kind])
    given: set[str] = set()
    for item in rest.split(",") if separator and rest.strip() else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if key not in values or not equals or key in given:
            known = ", ".join(values) or "none"
            raise UsageError(f"misbehaviour {text.strip()!r}: {item.strip()!r}: {kind} takes, once each: {known}")
        given.add(key)
        try:
            values[key] = _READERS[key](value)
        except ValueError as error:
            raise UsageError(f"misbehaviour {text.strip()!r}: {key} must be {error}, not {value!r}") from None
    return Act(kind, **values)


@dataclass(frozen=True)
class Misbehaviour:
    """Which share of the requests goes wrong, and how.

    shares  act -> share of the requests, each from 0 to 1 and no more than 1 together: {"stall; after=3, s=2": 0.1}
    seed    with a request's number (0 for the first since the start) decides whom it befalls; the same seed and
            order of requests give the same ones
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"engine misbehave.seed: expected a whole number, got {self.seed!r}")
        if not isinstance(self.shares, Mapping):
            raise UsageError(f"engine misbehave.shares: expected a table of act = share, got {self.shares!r}")
        for act, share in self.shares.items():
            try:
                parse_act(act)
            except UsageError as error:
                raise UsageError(f"engine misbehave.shares: {error}") from error
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise UsageError(f"engine misbehave.shares: {act!r}: expected a share from 0 to 1, got {share!r}")
        if math.fsum(self.shares.values()) > 1 + 1e-9:
            raise UsageError(f"engine misbehave.shares: they sum to {math.fsum(self.shares.values()):g}, more than 1")


def misbehaviour(table: object) -> Misbehaviour:
    """The misbehaviour of a config's `misbehave` table. Raises UsageError."""
    if not isinstance(table, Mapping):
        raise UsageError(f"engine misbehave: expected a table, got {table!r}")
    known = [f.name for f in fields(Misbehaviour)]
    for name in table:
        if name not in known:
            raise UsageError(f"engine misbehave.{name}: no such setting; there are {', '.join(known)}")
    return Misbehaviour(**table)


SPARED = "none"
"""What the header says of a request that is to be answered well."""


class Chooser:
    """Whom misbehaviour befalls: ask once for each request, in order of arrival."""

    def __init__(self, config: Misbehaviour) -> None:
        self._seed = mix64(config.seed & ((1 << 64) - 1))
        self._odds: list[tuple[Act, float]] = []
        left = 1.0
        for text, share in config.shares.items():
            # Drawn one after another: an act befalls its share of all, which is a larger one of those still spared.
            self._odds.append((parse_act(text), share / left if share < left else float(share > 0)))
            left -= share
        self._number = 0
        self._burst: list[Act] = []

    def next(self, header: str | None) -> Act | None:
        """The act for the next request; its header, if any, overrules shares, `SPARED` all acts.

        Raises UsageError for nonsense in it.
        """
        number = self._number
        self._number += 1
        if header == SPARED:
            return None
        if header is not None:
            act = parse_act(header)
            self._burst = [act] * ((act.burst or 1) - 1)
            return act
        if self._burst:
            return self._burst.pop()
        for place, (act, odds) in enumerate(self._odds):
            key = (number // (act.burst or 1)) * len(self._odds) + place
            if mix64(self._seed ^ key) < odds * 2**64:
                return act
        return None
