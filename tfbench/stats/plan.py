"""How many repeats decide: before anything is run, and after an undecided verdict."""

import math

from tfbench.stats.effect import Effect, normal_quantile
from tfbench.stats.equivalence import Direction, against_margin

MOST_REPEATS = 1000
"""Plans don't look beyond this many; a margin that takes more is too tight for the noise."""


def repeats_needed(sd: float, margin: float, level: float = 0.95, power: float = 0.9) -> int | None:
    """Pairs with which a one-sided t test at `level` shows an effect to lie `margin` inside its limit.

    Args:
        sd: standard deviation of one pair's effect (a log ratio or a difference), >= 0.
        margin: distance from the true effect to the limit on the same scale, e.g. log(1.05) for equal arms.
        power: the chance of it.

    Power of the noncentral t, exactly: P(T_{K-1, margin sqrt(K) / sd} > t). At least 2, even without noise; None where
    the margin is 0 or it takes more than 1000.
    """
    from scipy.special import nctdtr, stdtrit

    for name, share in (("level", level), ("power", power)):
        if not 0.0 < share < 1.0:
            raise ValueError(f"{name} must lie strictly between 0 and 1, not {share}")
    if not (math.isfinite(sd) and sd >= 0.0):
        raise ValueError(f"sd must be finite and not negative, not {sd}")
    if not margin > 0.0:
        return None
    if sd == 0.0:
        return 2
    ratio = margin / sd
    if ratio * math.sqrt(MOST_REPEATS) < normal_quantile(level) + normal_quantile(power):
        return None
    # Under the normal count nothing is enough; t asks for a few more.
    first = max(2, math.floor(((normal_quantile(level) + normal_quantile(power)) / ratio) ** 2))
    for k in range(first, MOST_REPEATS + 1):
        # Beyond 30 the noncentral distribution is 1 - 0 for any level in use, and its series slow.
        shift = min(ratio * math.sqrt(k), 30.0)
        if 1.0 - float(nctdtr(k - 1.0, shift, float(stdtrit(k - 1.0, level)))) >= power:
            return k
    return None


def sd_upper(sd: float, df: float, confidence: float = 0.8) -> float:
    """An upper confidence limit of a standard deviation, so that a plan from few runs isn't too short by luck.

    sd * sqrt(df / chi2_df(1 - confidence)). Source: Browne (1995), "On the use of a pilot sample for sample size
    determination".
    """
    from scipy.special import chdtri

    return sd * math.sqrt(df / float(chdtri(df, confidence)))


def sd_limits(sd: float, df: float, confidence: float = 0.95) -> tuple[float, float]:
    """Both confidence limits of a standard deviation: how far a pilot's noise may be from the true one.

    sd * sqrt(df / chi2_df): of 5 pairs 0.6 to 2.9 times what was measured, of 10 pairs 0.7 to 1.8 times.
    """
    from scipy.special import chdtri

    tail = (1.0 - confidence) / 2
    low, high = (sd * math.sqrt(df / float(chdtri(df, beyond))) for beyond in (tail, 1.0 - tail))
    return low, high


def repeats_to_decide(
    effect: Effect, limit: float, direction: Direction, level: float, power: float = 0.8, *, rows: int = 1
) -> int | None:
    """Repeats in all with which an undecided effect would be shown fine or too bad, if its estimate and spread hold.

    rows: how many are tested together; "too bad" is shown at (1 - level) / rows, where Holm begins.

    The estimate is moved towards the limit by what chance may do with probability 1 - power. None where it takes more
    than 1000: the effect lies at its limit.
    """
    if effect.estimate is None or effect.k < 1:
        return None
    z, alpha = normal_quantile(power), 1.0 - level

    def decides(k: int) -> bool:
        grown = effect.grown(k / effect.k)
        luck = z * grown.spread
        fine = against_margin(grown, limit - luck if direction == "lower" else limit + luck, direction).p_fine
        worse = against_margin(grown, limit + luck if direction == "lower" else limit - luck, direction).p_worse
        return fine <= alpha or worse <= alpha / rows

    if not decides(MOST_REPEATS):
        return None
    low, high = effect.k, MOST_REPEATS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
