"""Numbers, intervals, and sentences about n, K and method, as both the terminal and the page print them."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfbench.report.model import Figure, LoadPoint

NOTHING = "–"
UNSETTLED = "?"
PERCENT_FLOOR = 0.01
"""Per cents under this are told as such, beside larger ones: a bound of 1e-08 % is as good as none."""


@dataclass(frozen=True)
class Shown:
    """A figure in text: `value` with its mark, `interval` (empty when there is none), and what wants a footnote."""

    value: str
    interval: str
    mark: str

    @property
    def line(self) -> str:
        """Both on one line: 12.3 [11.9, 12.8]."""
        return f"{self.value} {self.interval}".strip()


def scale_of(unit: str) -> float:
    """What a value is multiplied by for reading: fractions are shown in per cent."""
    return 100.0 if unit in {"fraction", "1", "ratio"} else 1.0


def unit_words(unit: str) -> str:
    """The unit as printed."""
    return "%" if scale_of(unit) == 100.0 else unit


def decimals_for(numbers: Iterable[float], digits: int = 3) -> int:
    """Decimals that give the first non-zero number `digits` significant digits and keep different numbers apart."""
    known = [abs(x) for x in numbers]
    lead = next((x for x in known if x > 0), 0.0)
    decimals = max(0, digits - 1 - math.floor(math.log10(lead))) if lead else 0
    while decimals < 9 and len({f"{x:.{decimals}f}" for x in known}) < len(set(known)):
        decimals += 1
    return decimals


def _texter(known: Sequence[float], digits: int = 3, percent: bool = False) -> Callable[[float], str]:
    """Formats every number of one figure alike; very large and very small ones get an exponent."""
    floor = PERCENT_FLOOR if percent and max(known, default=0.0) >= PERCENT_FLOOR else 0.0
    known = [x for x in known if not 0 < x < floor]
    small = any(x != 0 and abs(x) < 1e-4 for x in known)
    # 100 % is exact or a bound's neighbour; its bound wants more than whole per cents.
    decimals = max(decimals_for(known, digits), int(percent))
    large = {x for x in known if abs(x) >= 10**digits}
    apart = len({f"{x:.0f}" for x in large}) == len(large)

    def text(x: float) -> str:
        if x == 0 or (percent and x == 100):
            return f"{x:.0f}"
        if 0 < x < floor:
            return f"< {floor:g}"
        if small or abs(x) >= 1e9:
            return f"{x:.{digits}g}"
        return f"{x:,.{0 if x in large and apart else decimals}f}"

    return text


def number(value: float | None, digits: int = 3) -> str:
    """A number with thousands separators and about `digits` significant digits."""
    if value is None:
        return NOTHING
    return _texter([value], digits)(value)


def shown(figure: Figure | None, comma: str = ", ") -> Shown:
    """A figure as text. `≥`/`≤`: only a bound is known; `?`: the sample's value, which n can't settle."""
    if figure is None or figure.empty:
        return Shown(NOTHING, "", NOTHING)
    scale = scale_of(figure.unit)
    value, lo, hi = (None if x is None else x * scale for x in (figure.value, figure.lo, figure.hi))
    known = [x for x in (value, lo, hi) if x is not None]
    text = _texter(known, percent=scale == 100.0)
    bound = _bound(lo, hi, text, comma)
    if value is None:
        return Shown(bound, "", bound[0] if bound[:1] in "≥≤" else "")
    mark = UNSETTLED if not figure.settled else bound[0] if bound[:1] in ("≥", "≤") else ""
    return Shown(text(value) + (UNSETTLED if not figure.settled else ""), bound, mark)


def compact(figure: Figure | None) -> Shown:
    """As `shown`, but where the bounds lie about as far below as above the value, it's ± the farther one."""
    text = shown(figure)
    if figure is None or figure.value is None or figure.lo is None or figure.hi is None:
        return text
    above, below = figure.hi - figure.value, figure.value - figure.lo
    if unit_words(figure.unit) == "%" or not 0 < max(above, below) < 1.25 * min(above, below):
        return text
    known = [figure.value, figure.lo, figure.hi]
    decimals = len(_texter(known)(figure.value).partition(".")[2])
    far = math.ceil(round(max(above, below) * 10**decimals, 6)) / 10**decimals
    return Shown(text.value, f"±{far:,.{decimals}f}", text.mark) if far < 1e9 else text


def _bound(lo: float | None, hi: float | None, text: Callable[[float], str], comma: str) -> str:
    if lo is not None and hi is not None:
        return f"[{text(lo)}{comma}{text(hi)}]"
    if lo is not None:
        least = text(lo)
        return "≥ 0" if least.startswith("<") else f"≥ {least}"
    return "" if hi is None else f"≤ {text(hi)}"


def span(numbers: Sequence[int]) -> str:
    """`240`, or `118–240` when they differ."""
    if not numbers:
        return NOTHING
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def per_load(pairs: Sequence[tuple[LoadPoint, int]], unit: str, most: int = 6) -> str:
    """`118 / 240 attempts (at 2 / 4)` for up to `most` load points, else the span."""
    if len({n for _, n in pairs}) <= 1 or len(pairs) > most:
        return f"{span([n for _, n in pairs])} {unit}"
    return f"{' / '.join(f'{n:,}' for _, n in pairs)} {unit} (at {' / '.join(load.label for load, _ in pairs)})"


def repeats(ks: Sequence[int]) -> str:
    """`K = 5 runs a load point`."""
    return f"K = {span(ks)} run{'' if set(ks) == {1} else 's'} a load point"


def gathered(pairs: Sequence[tuple[str, str]]) -> str:
    """(word, load) pairs in few words: `P50, P95 at 2, 4; P99 at 8`."""
    by_load: dict[str, list[str]] = {}
    for word, load in pairs:
        by_load.setdefault(load, []).append(word)
    groups: dict[str, list[str]] = {}
    for load, words in by_load.items():
        groups.setdefault(", ".join(words), []).append(load)
    return "; ".join(f"{words} at {', '.join(loads)}" for words, loads in groups.items())


_NUMBER = re.compile(r"(?<![A-Za-z\d])\d[\d,]*(?:\.\d+)?")


def skeleton(text: str) -> str:
    """A text without its numbers (those within a word, as in P95, stay)."""
    return _NUMBER.sub("#", text)


def merged(texts: Sequence[str]) -> str:
    """Texts that differ in their numbers alone as one: each number becomes the span of them, 3–9."""
    if len(set(texts)) == 1:
        return texts[0]
    slots = [
        sorted(set(column), key=lambda x: float(x.replace(",", "")))
        for column in zip(*map(_NUMBER.findall, texts), strict=True)
    ]
    spans = iter([one[0] if len(one) == 1 else f"{one[0]}–{one[-1]}" for one in slots])
    return _NUMBER.sub(lambda _: next(spans), texts[0])


def caption(figures: Sequence[Figure], unit: str = "attempts") -> str:
    """One sentence with n, K, level and method for the figures of one drawing."""
    held = [figure for figure in figures if not figure.empty]
    if not held:
        return "n = 0: no value to draw."
    ns: dict[LoadPoint, int] = {}
    for figure in held:
        if figure.n is not None:
            ns[figure.load] = max(ns.get(figure.load, 0), figure.n)
    ks = [figure.k for figure in held if figure.k is not None]
    return f"n = {per_load(list(ns.items()), unit)}; {repeats(ks)}. " + method_sentence(held)


def method_sentence(figures: Sequence[Figure]) -> str:
    """Which interval method served, and where more than one did."""
    level = {figure.level for figure in figures if figure.level is not None and figure.method}
    by_method: dict[str, list[LoadPoint]] = {}
    for figure in figures:
        where = by_method.setdefault(figure.method or "no interval", [])
        if figure.load not in where:
            where.append(figure.load)
    words = "–".join(f"{x * 100:g}" for x in sorted(level))
    head = f"{words} % intervals: " if words else ""
    if set(by_method) == {"no interval"}:
        return "No interval."
    if len(by_method) == 1:
        return f"{head}{next(iter(by_method))}."
    return (
        head
        + "; ".join(f"{method} (at {', '.join(load.label for load in at)})" for method, at in by_method.items())
        + "."
    )
