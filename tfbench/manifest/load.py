"""The `[load]` table: how requests arrive, for how long, how often repeated."""

import bisect
import math
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from tfbench.core.kinds import Mode
from tfbench.manifest.base import Count, NonNegative, Positive, Table, Whole, refusal
from tfbench.manifest.dists import Seconds
from tfbench.manifest.hooks import Prime
from tfbench.manifest.limits import MAX_ARRIVALS, MAX_RUN_S, MAX_RUNS, MAX_TIMESTAMPS, MAX_USERS
from tfbench.manifest.traffic import Cancel, Ramp, Retry


def _rate(value: Any) -> Any:
    return math.inf if value == "inf" else value


# JSON has no infinity, so an all-at-once rate is the text "inf" in a frozen manifest.
Rate = Annotated[
    float,
    Field(gt=0, allow_inf_nan=True),
    BeforeValidator(_rate),
    PlainSerializer(lambda rate: "inf" if math.isinf(rate) else rate),
]
_Users = Annotated[Count, Field(le=MAX_USERS)]


def _numbers(value: Any) -> Any:
    if isinstance(value, str | dict):
        raise refusal("names a file, which is read only on the way from a manifest file; give its numbers")
    return value


_Timestamps = Annotated[
    tuple[Annotated[float, Field(ge=0, le=MAX_RUN_S)], ...],
    Field(strict=False, min_length=1, max_length=MAX_TIMESTAMPS),
    BeforeValidator(_numbers),
]


class Load(Table):
    """Open loop: `rates` in requests per second. Closed loop: `concurrency` in users, `think_s` between turns.

    `open_capped` is an open loop with at most `max_in_flight` requests at once; the wait for a slot is recorded.
    Gamma gaps have shape = `burstiness` and scale = 1/(rate·burstiness): below 1 burstier than Poisson, above 1
    smoother. A run ends after `duration_s` of measuring or `count` measured requests. A rate `inf` sends `count`
    requests at once.

    `process = "replay"` sends at recorded `timestamps`: seconds from the start of the run, as a list; or a file, then
    from its first line, which holds one number a line, or CSV or JSON lines with a column `timestamp`; column and unit
    can be named: `{ file = "a.csv", column = "t", unit = "ms" }`. Its numbers become part of the frozen manifest.
    `rates` are then speeds (1 as recorded, 2 twice as fast); by default all of it is measured, without a warm-up.

    Each repeat takes the load points in an order drawn from `seed`; every other one takes that of the repeat before it
    backwards, so that a steady drift weighs on all points alike.

    `cache` declares what the system's prefix cache holds when a run begins, and is kept with each run. "cold": nothing
    of the run's prompts; `hooks.flush` sees to it, or else the prompts do, since no two runs share any. "warm": what
    the requests of `prime` leave.

    `salt` goes into the words of every prompt. Unset, each study draws its own, so that a server which has seen one
    study's prompts hasn't seen the next one's; it is kept in `runs.observed`, and given here it makes the same prompts
    again. With "warm", and in a simulation, unset means none: prompts are then the seed's alone, as with salt = "".
    Lengths, classes and times depend on `seed`, never on the salt.
    """

    mode: Annotated[Mode, Field(strict=False)] = Field(Mode.OPEN, examples=['"open"'])
    process: Literal["poisson", "gamma", "constant", "replay"] | None = Field(None, examples=['"poisson"'])
    burstiness: Annotated[float, Field(ge=0.01, le=1000)] | None = Field(None, examples=["0.5"])
    rates: Annotated[tuple[Rate, ...], Field(strict=False, min_length=1)] | None = Field(None, examples=["[2, 4, 8]"])
    concurrency: Annotated[tuple[_Users, ...], Field(strict=False, min_length=1)] | None = Field(
        None, examples=["[1, 4, 16]"]
    )
    timestamps: _Timestamps | None = Field(None, examples=['"arrivals.csv"', "[0, 0.4, 1.7]"])
    ramp: Ramp | None = Field(None, examples=["{ to = 16 }"])
    max_in_flight: _Users | None = Field(None, examples=["64"])
    think_s: Seconds = Field(0.0, examples=["0.5"])
    duration_s: Annotated[Positive, Field(le=MAX_RUN_S)] | None = Field(None, examples=["60"])
    count: Annotated[Count, Field(le=MAX_ARRIVALS)] | None = Field(None, examples=["4000"])
    warmup_s: Annotated[NonNegative, Field(le=MAX_RUN_S)] = Field(10.0, examples=["10"])
    drain_s: Annotated[NonNegative, Field(le=MAX_RUN_S)] = Field(30.0, examples=["30"])
    repeats: Count = Field(5, examples=["5"])
    seed: Annotated[Whole, Field(ge=0)] = Field(0, examples=["7"])
    retry: Retry | None = Field(None, examples=['{ outcomes = ["rejected"], max = 2 }'])
    cancel: Cancel | None = Field(None, examples=["{ share = 0.05, after_s = 0.5 }"])
    cache: Literal["cold", "warm"] | None = Field(None, examples=['"cold"'])
    salt: Annotated[str, Field(max_length=64)] | None = Field(None, examples=['"nightly"'])
    prime: Prime | None = Field(None, examples=['{ set = "prompts", count = 64 }'])

    @property
    def points(self) -> tuple[float, ...]:
        """The load points: rates, or concurrencies."""
        return tuple(float(point) for point in self.rates or self.concurrency or ())

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """Defaults that depend on other keys."""
        if not isinstance(data, dict):
            return data
        filled = {key: value for key, value in data.items() if value is not None}
        closed = filled.get("mode") == "closed"
        if "rates" not in filled and "concurrency" not in filled:
            filled["concurrency" if closed else "rates"] = [1]
        timestamps = filled.get("timestamps")
        if not closed:
            filled.setdefault("process", "poisson" if timestamps is None else "replay")
        if filled.get("process") == "replay":
            filled.setdefault("warmup_s", 0.0)
            if isinstance(timestamps, list | tuple) and filled["warmup_s"] == 0 and "duration_s" not in filled:
                filled.setdefault("count", max(1, len(timestamps)))
        if filled.get("process") == "gamma":
            filled.setdefault("burstiness", 1.0)
        elif filled.get("process") == "poisson" and filled.get("burstiness") == 1:
            del filled["burstiness"]
        if "count" not in filled and filled.get("process") != "replay":
            filled.setdefault("duration_s", 60.0)
        if filled.get("cache") == "warm":
            filled.setdefault("prime", {})
        rates = filled.get("rates")
        if isinstance(rates, list | tuple) and any(rate in (math.inf, "inf") for rate in rates):
            filled.setdefault("warmup_s", 0.0)
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_mode()
        if self.duration_s is not None and self.count is not None:
            raise refusal("stands beside duration_s; keep one of them (a run ends by time or by count)", "count")
        for key, points in (("rates", self.rates), ("concurrency", self.concurrency)):
            doubles = [point for point in points or () if (points or ()).count(point) > 1]
            if doubles:
                raise refusal(f"has {doubles[0]:g} twice; repetition is what load.repeats is for", key)
        if self.prime is not None and self.cache != "warm":
            raise refusal('belongs to cache = "warm"; set it, or remove prime', "prime")
        if len(self.points) * self.repeats > MAX_RUNS:
            runs = f"{len(self.points)} load points × {self.repeats} repeats"
            raise refusal(f"{runs} is over the limit of {MAX_RUNS:,} runs; lower it", "repeats")
        self._check_arrivals()
        for rate in self.rates or ():
            if self.timestamps is None:
                self._check_rate(rate)
            else:
                self._check_speed(rate, self.timestamps)
        return self

    def _check_mode(self) -> None:
        closed = self.mode is Mode.CLOSED
        given = {key: getattr(self, key) is not None for key in ("rates", "concurrency", "process", "burstiness")}
        if closed and given["rates"]:
            raise refusal('belongs to an open loop; give concurrency, or mode = "open"', "rates")
        if closed and (given["process"] or given["burstiness"]):
            key = "process" if given["process"] else "burstiness"
            raise refusal("belongs to an open loop; a closed loop has think_s instead; remove it", key)
        if not closed and given["concurrency"]:
            raise refusal('belongs to a closed loop; give rates, or mode = "closed"', "concurrency")
        if not closed and self.think_s != 0:
            raise refusal('belongs to a closed loop; remove it, or set mode = "closed"', "think_s")
        if given["burstiness"] and self.process != "gamma":
            raise refusal(f'has no meaning with process = "{self.process}"; set process = "gamma"', "burstiness")
        if self.mode is Mode.OPEN_CAPPED and self.max_in_flight is None:
            raise refusal('is required with mode = "open_capped"; for example max_in_flight = 64', "max_in_flight")
        if self.mode is not Mode.OPEN_CAPPED and self.max_in_flight is not None:
            raise refusal('needs mode = "open_capped"; set it, or remove max_in_flight', "max_in_flight")

    def _check_arrivals(self) -> None:
        replay = self.process == "replay"
        if self.timestamps is not None and not replay:
            mend = 'belongs to an open loop; remove it, or set mode = "open"'
            other = 'belongs to process = "replay"; set it, or remove timestamps'
            raise refusal(mend if self.mode is Mode.CLOSED else other, "timestamps")
        if replay and self.timestamps is None:
            text = 'is required with process = "replay"; for example timestamps = "arrivals.csv"'
            raise refusal(text, "timestamps")
        for i, (before, after) in enumerate(pairwise(self.timestamps or ()), start=1):
            if after < before:
                raise refusal(f"{after:g} is earlier than the one before it, {before:g}; sort them", "timestamps", i)
        if self.ramp is None:
            return
        if self.mode is Mode.CLOSED:
            raise refusal('belongs to an open loop; remove it, or set mode = "open"', "ramp")
        if replay:
            raise refusal('has no meaning with process = "replay"; remove one of them', "ramp")
        if self.count is not None:
            raise refusal("moves the rate over duration_s; give that instead of count", "ramp")

    def _check_speed(self, speed: float, timestamps: tuple[float, ...]) -> None:
        if math.isinf(speed):
            raise refusal('has inf, which is no speed for a replay; for all at once set process = "poisson"', "rates")
        last = timestamps[-1] / speed
        if last + self.drain_s > MAX_RUN_S:
            text = f"speed {speed:g} makes a run of {last + self.drain_s:,.0f} s, over the limit of {MAX_RUN_S:,.0f}"
            raise refusal(f"{text}; raise it, or give fewer timestamps", "rates")
        warm = bisect.bisect_left(timestamps, self.warmup_s * speed)
        after = f"at speed {speed:g} only {len(timestamps) - warm} timestamps come after the warm-up"
        if self.count is not None:
            if self.count > len(timestamps) - warm:
                raise refusal(f"wants {self.count} measured requests, but {after}; lower count or warmup_s", "count")
            return
        if self.duration_s is None:
            text = "must be 0, the default, where all timestamps are measured; otherwise give duration_s or count too"
            raise refusal(text, "warmup_s")
        end = self.warmup_s + self.duration_s
        if bisect.bisect_left(timestamps, end * speed) == warm:
            text = f"at speed {speed:g} no timestamp lies in the window, {self.warmup_s:g} to {end:g} s"
            raise refusal(f"{text}; change warmup_s or duration_s", "timestamps")
        if last < self.warmup_s + self.duration_s / 2:
            text = f"end at {last:g} s at speed {speed:g}, so more than half of the window (to {end:g} s) is idle"
            raise refusal(f"{text}; lower duration_s", "timestamps")

    def _check_rate(self, rate: float) -> None:
        if math.isinf(rate):
            if self.count is None:
                raise refusal("inf sends everything at once and needs count instead of duration_s", "rates")
            if self.ramp is not None:
                raise refusal("has no meaning with a rate of inf; remove one of them", "ramp")
            if self.warmup_s > 0:
                raise refusal("must be 0 with a rate of inf, which has no warm-up", "warmup_s")
            return
        if self.count is None:
            measured = self.duration_s or 0.0
            mean, last = (rate, rate) if self.ramp is None else (self.ramp.mean_rate(rate), self.ramp.to)
            seconds = self.warmup_s + measured + self.drain_s
            arrivals = rate * self.warmup_s + mean * measured + last * self.drain_s
            if mean * measured < 1:
                text = f"{mean:,.12g} req/s × {measured:g} s expects less than one request; raise rates or duration_s"
                raise refusal(text, "rates")
        else:
            seconds = self.warmup_s + self.count / rate + self.drain_s
            arrivals = rate * self.warmup_s + self.count
        if arrivals > MAX_ARRIVALS:
            ramp = "" if self.ramp is None else f" moving to {self.ramp.to:,.12g}"
            text = (
                f"{rate:,.12g} req/s{ramp} makes {arrivals:,.0f} scheduled arrivals, over the limit of {MAX_ARRIVALS:,}"
            )
            raise refusal(f"{text}; lower rates, duration_s or count", "rates")
        if seconds > MAX_RUN_S:
            text = f"{rate:,.12g} req/s makes a run of {seconds:,.0f} s, over the limit of {MAX_RUN_S:,.0f}"
            raise refusal(f"{text}; raise rates, or lower duration_s or count", "rates")
