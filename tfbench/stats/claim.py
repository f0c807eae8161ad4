"""One-sided claims about fractions: "at least 95 % within X", which is "P95 <= X" without estimating a quantile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tfbench.stats.combine import combine_fraction
from tfbench.stats.fraction import one_sided_p
from tfbench.stats.interval import BoolArray, FloatArray, Interval


@dataclass(frozen=True, slots=True)
class FractionClaim:
    """What the runs say of "the fraction is at least `share`".

    Args:
        share: what is claimed, in (0, 1).
        level: of either decision.
        decision: supported (the lower bound reaches `share`), refuted (the upper bound falls short of it), undecided.
        p_supported, p_refuted: exact one-sided p-values on effective attempts of what each decision rejects; None
            without data.
        fraction: the interval whose bounds each hold at `level`; a bound that isn't shown decides nothing.
    """

    share: float
    level: float
    decision: Literal["supported", "refuted", "undecided"]
    p_supported: float | None
    p_refuted: float | None
    fraction: Interval


def fraction_claim(
    runs: Sequence[BoolArray],
    share: float,
    *,
    score: Sequence[FloatArray] | None = None,
    level: float = 0.95,
) -> FractionClaim:
    """Judges "at least `share` of the attempts are so" with two one-sided tests at `level`.

    Args: runs, score as `combine_fraction`; for "P95 <= X" runs are latency <= X (a failure is not), score is
    latency / X and share 0.95.

    Raises:
        ValueError: share outside (0, 1), level outside (0.5, 1); what `combine_fraction` raises.
    """
    if not 0.5 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0.5 and 1, not {level}")
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must lie strictly between 0 and 1, not {share}")
    fraction = combine_fraction(runs, score=score, level=2.0 * level - 1.0)
    decision: Literal["supported", "refuted", "undecided"] = "undecided"
    if fraction.value is None or fraction.n_eff is None:
        return FractionClaim(share, level, decision, None, None, fraction)
    if fraction.lo is not None and fraction.lo >= share:
        decision = "supported"
    elif fraction.hi is not None and fraction.hi < share:
        decision = "refuted"
    worth = fraction.n_eff
    p_supported, p_refuted = one_sided_p(min(worth, worth * fraction.value), worth, share)
    return FractionClaim(share, level, decision, p_supported, p_refuted, fraction)
