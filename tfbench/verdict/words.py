"""Effects in words, as every reader of a comparison sees them."""


def effect_text(effect: float | None, scale: str, unit: str) -> str:
    """+12 %, -0.8 points, +3.1 ms; `no finite effect` for None."""
    if effect is None:
        return "no finite effect"
    number, sign = _shown(effect, scale, unit)
    return f"× {effect:.3g}" if scale == "ratio" and effect >= 10 else f"{number} {sign}"


def bounds_text(lo: float | None, hi: float | None, scale: str, unit: str) -> str:
    """[-0.3, +1.2] %; ≥ or ≤ where one is open; empty where both are."""
    if lo is not None and hi is not None:
        if scale == "ratio" and hi >= 10:
            return f"× [{lo:.3g}, {hi:.3g}]"
        (low, sign), (high, _) = _shown(lo, scale, unit), _shown(hi, scale, unit)
        return f"[{low}, {high}] {sign}"
    if lo is not None:
        return f"≥ {effect_text(lo, scale, unit)}"
    return "" if hi is None else f"≤ {effect_text(hi, scale, unit)}"


def n_text(n: int, n_eff: float | None) -> str:
    """`750`, or `750 (253)` where n correlated observations are worth fewer independent ones."""
    worth = n if n_eff is None else round(n_eff)
    return f"{n:,}" if worth == n else f"{n:,} ({worth:,})"


def decision_words(met: bool | None, scouted: bool | None) -> str:
    """Whether a load meets its target, in words; a load that was only scouted is likely to, or not to."""
    said = scouted if met is None else met
    words = "undecided" if said is None else "met" if said else "not met"
    return words if met is not None or scouted is None else f"likely {words}"


def _shown(effect: float, scale: str, unit: str) -> tuple[str, str]:
    if scale == "ratio":
        return f"{(effect - 1.0) * 100:+.3g}", "%"
    return (f"{effect * 100:+.3g}", "points") if unit == "1" else (f"{effect:+.3g}", unit)
