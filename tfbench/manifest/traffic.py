"""Parts of `[load]` that shape single requests: a rate that moves in time, retries, planned cancellation."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tfbench.core.kinds import Outcome
from tfbench.manifest.base import Count, NonNegative, Positive, Table, refusal
from tfbench.manifest.limits import MAX_RETRIES, MAX_RUN_S

_NEVER_RETRIED = {
    Outcome.OK: "has nothing to retry",
    Outcome.CANCELLED: "is what the plan wanted",
    Outcome.UNFINISHED: "comes when the run is over",
    Outcome.UNSENT: "comes when the run is over",
}
_Seconds = Annotated[NonNegative, Field(le=MAX_RUN_S)]


class Ramp(Table):
    """A rate that moves in time, from the load point's at the start of the window to `to` at its end.

    Warm-up is at the first rate, drain at the last. The process keeps its law (Poisson, Gamma, constant) in units of
    expected arrivals: arrival i comes when the integral of the rate reaches the i-th point of a unit-rate process.
    """

    to: Positive = Field(examples=["16"])
    shape: Literal["linear", "exponential"] = Field("linear", examples=['"linear"'])

    def mean_rate(self, rate: float) -> float:
        """The mean rate over a window that begins at `rate`, per second."""
        growth = self.growth(rate)
        return (rate + self.to) / 2 if growth == 0 else (self.to - rate) / growth

    def growth(self, rate: float) -> float:
        """ln(to / rate) of an exponential ramp; 0 for a linear one, and where the two can't be told apart."""
        growth = math.log(self.to) - math.log(rate)
        return 0.0 if self.shape == "linear" or abs(growth) < 1e-6 else growth


class Retry(Table):
    """Which outcomes are tried again, as new attempts of the same task, and after how long.

    Retry r (from 1, at most `max`) is due min(cap_s, backoff_s · factor^(r−1)) after the attempt before it ended. With
    `honour_retry_after` a server's Retry-After makes that wait longer, never shorter; a server that asks for more than
    `cap_s` is not asked again.
    """

    outcomes: Annotated[tuple[Annotated[Outcome, Field(strict=False)], ...], Field(strict=False, min_length=1)] = Field(
        (Outcome.REJECTED, Outcome.CONNECT_ERROR), examples=['["rejected", "connect_error"]']
    )
    max: Annotated[Count, Field(le=MAX_RETRIES)] = Field(2, examples=["2"])
    backoff_s: _Seconds = Field(0.5, examples=["0.5"])
    factor: Annotated[float, Field(ge=1, le=100)] = Field(2.0, examples=["2"])
    cap_s: _Seconds = Field(30.0, examples=["30"])
    honour_retry_after: bool = Field(True, examples=["true"])

    @model_validator(mode="after")
    def _check(self) -> Self:
        for outcome in self.outcomes:
            if outcome in _NEVER_RETRIED:
                raise refusal(f'"{outcome.value}" {_NEVER_RETRIED[outcome]}; remove it', "outcomes")
            if self.outcomes.count(outcome) > 1:
                raise refusal(f'has "{outcome.value}" twice; keep it once', "outcomes")
        if self.cap_s < self.backoff_s:
            raise refusal(f"{self.cap_s:g} is below backoff_s {self.backoff_s:g}; raise it", "cap_s")
        return self


def retry_delay_s(policy: Retry, try_: int, retry_after_s: float | None) -> float | None:
    """Seconds from the end of attempt `try_` (0 for the scheduled one) to its retry; None when there is none.

    Whether the outcome is one of `policy.outcomes` is the caller's to ask. `retry_after_s` is what the answer's
    Retry-After header said, None without one.
    """
    if try_ >= policy.max:
        return None
    delay = min(policy.cap_s, policy.backoff_s * policy.factor**try_)
    if not policy.honour_retry_after or retry_after_s is None or not retry_after_s > delay:
        return delay
    return retry_after_s if retry_after_s <= policy.cap_s else None


class Cancel(Table):
    """Planned cancellation: a `share` of requests, drawn by seed and index, is cut by the client.

    Either `after_s` seconds after it was sent, or after `after_chunks` chunks of output. One that ends earlier keeps
    its own outcome.
    """

    share: Annotated[float, Field(gt=0, le=1)] = Field(examples=["0.05"])
    after_s: Annotated[Positive, Field(le=MAX_RUN_S)] | None = Field(None, examples=["0.5"])
    after_chunks: Count | None = Field(None, examples=["3"])

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.after_s is None) == (self.after_chunks is None):
            raise refusal("needs exactly one of after_s and after_chunks; for example after_s = 0.5", "after_s")
        return self
