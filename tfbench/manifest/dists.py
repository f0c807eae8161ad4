"""Distributions a manifest may name for token counts and think times."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from tfbench.manifest.base import Count, NonNegative, Positive, Table, refusal
from tfbench.manifest.limits import MAX_TOKENS

_Numbers = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
_Pair = Annotated[tuple[Count, Count], Field(strict=False)]


def _check_order(low: float | None, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        raise refusal(f"min {low:g} is above max {high:g}; swap them", "min")


class Uniform(Table):
    """Uniform on [min, max]; for tokens, on the whole numbers from min to max, both included."""

    dist: Literal["uniform"]
    min: float = Field(examples=["64"])
    max: float = Field(examples=["256"])

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_order(self.min, self.max)
        return self


class LogNormal(Table):
    """Log-normal with mean `mean` and coefficient of variation `cv` *before* clipping to [min, max].

    sigma² = ln(1 + cv²), mu = ln(mean) − sigma²/2. Values outside are moved to the bound, so the clipped mean is
    lower than `mean` where `max` cuts much off.
    """

    dist: Literal["lognormal"]
    mean: Positive = Field(examples=["512"])
    cv: Annotated[float, Field(ge=0, le=100)] = Field(examples=["0.8"])
    min: float | None = Field(None, examples=["16"])
    max: float | None = Field(None, examples=["4096"])

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_order(self.min, self.max)
        return self


class Normal(Table):
    """Normal with mean `mean` and either `sd` or `cv` *before* clipping to [min, max]."""

    dist: Literal["normal"]
    mean: Positive = Field(examples=["512"])
    sd: NonNegative | None = Field(None, examples=["64"])
    cv: Annotated[float, Field(ge=0, le=100)] | None = Field(None, examples=["0.2"])
    min: float | None = Field(None, examples=["16"])
    max: float | None = Field(None, examples=["4096"])

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.sd is None) == (self.cv is None):
            raise refusal("needs exactly one of sd and cv; for example cv = 0.2", "sd")
        _check_order(self.min, self.max)
        return self


class Empirical(Table):
    """Draws from `values`, or from `pairs` of [input, output] token counts; `weights` are relative, default equal."""

    dist: Literal["empirical"]
    values: _Numbers | None = Field(None, examples=["[64, 128, 256]"])
    pairs: Annotated[tuple[_Pair, ...], Field(strict=False, min_length=1)] | None = Field(
        None, examples=["[[64, 16], [512, 128]]"]
    )
    weights: _Numbers | None = Field(None, examples=["[0.5, 0.3, 0.2]"])

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.values is None) == (self.pairs is None):
            raise refusal("needs exactly one of values and pairs; for example values = [64, 128, 256]", "values")
        if self.weights is not None:
            n = len(self.values or self.pairs or ())
            if len(self.weights) != n:
                raise refusal(f"has {len(self.weights)} entries for {n} outcomes; give one weight each", "weights")
            if min(self.weights) < 0 or not 0 < sum(self.weights) < float("inf"):
                raise refusal("must not be negative and must add up to more than 0", "weights")
        return self


Dist = Uniform | LogNormal | Normal | Empirical

DISTS: dict[str, type[Table]] = {
    "uniform": Uniform,
    "lognormal": LogNormal,
    "normal": Normal,
    "empirical": Empirical,
}
TAG = "@"
"""Marks the union tags in the locations of pydantic's errors, so that they can be told from keys."""


def _tag_of(value: Any) -> str | None:
    if isinstance(value, dict):
        name = value.get("dist")
        return TAG + name if isinstance(name, str) else None
    if isinstance(value, Table):
        return TAG + str(getattr(value, "dist", ""))
    return TAG + "number"


def _numbers_of(dist: Dist) -> list[tuple[str, float]]:
    named = [(key, getattr(dist, key, None)) for key in ("min", "max", "mean")]
    found = [(key, float(value)) for key, value in named if value is not None]
    if isinstance(dist, Empirical):
        found += [("values", value) for value in dist.values or ()]
        found += [("pairs", float(max(pair))) for pair in dist.pairs or ()]
    return found


def _check_tokens(value: int | Dist) -> int | Dist:
    if isinstance(value, int):
        return value
    for key, number in _numbers_of(value):
        if not 1 <= number <= MAX_TOKENS:
            raise refusal(f"must be from 1 to {MAX_TOKENS:,} tokens, got {number:g}", key)
        if key not in ("mean",) and not number.is_integer():
            raise refusal(f"must be whole tokens, got {number:g}", key)
    return value


def _check_seconds(value: float | Dist) -> float | Dist:
    if isinstance(value, float | int):
        return value
    for key, number in _numbers_of(value):
        if number < 0:
            raise refusal(f"must not be negative, got {number:g}", key)
    if isinstance(value, Empirical) and value.pairs is not None:
        raise refusal("pairs are token counts; give values = [...] in seconds", "pairs")
    return value


_AnyDist = (
    Annotated[Uniform, Tag("@uniform")]
    | Annotated[LogNormal, Tag("@lognormal")]
    | Annotated[Normal, Tag("@normal")]
    | Annotated[Empirical, Tag("@empirical")]
)

Tokens = Annotated[
    Annotated[Annotated[Count, Field(le=MAX_TOKENS)], Tag("@number")] | _AnyDist,
    Discriminator(_tag_of),
    AfterValidator(_check_tokens),
]
"""A token count: a whole number, or a table with `dist`."""

Seconds = Annotated[
    Annotated[NonNegative, Tag("@number")] | _AnyDist, Discriminator(_tag_of), AfterValidator(_check_seconds)
]
"""A time in seconds: a number, or a table with `dist`."""
