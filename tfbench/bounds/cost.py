"""Cost and break-even arithmetic: plain what-ifs. Currency is the caller's; the whole window pays, idle time too."""


def per_million(cost: float, qualified_tokens: float) -> float | None:
    """Cost of a million qualified tokens; None without any, as no finite figure exists.

    `cost` is that of the whole window (failed, rejected and retried work included); failures leave only the tokens.
    """
    return cost * 1e6 / qualified_tokens if qualified_tokens > 0 else None


def cost_per_million(cost_per_hour: float, qualified_tokens_per_s: float) -> float | None:
    """1e6·H/(3600·G): cost of a million qualified tokens at a price per hour; None at a rate of zero."""
    return per_million(cost_per_hour, 3600 * qualified_tokens_per_s)


def cost_per_task(cost_per_try: float, tries: float) -> float:
    """Cost of a finished task that takes `tries` attempts on average, each of which is paid."""
    return cost_per_try * tries


def cascade_cost(share: float, price_ratio: float, *, escalated: float = 0.0) -> float:
    """Cost relative to the strong model alone, where a small one of `price_ratio` its price takes `share` of requests.

    The rest goes straight to the strong one; `escalated` of the small one's requests are done again by it, and paid
    twice. Assumes equal quality and a free router.
    """
    return share * (price_ratio + escalated) + (1 - share)


def component_change(share: float, change: float, *, fixed_price: bool = False) -> float:
    """Relative change of a total when a component of `share` changes by `change` (−0.3 for 30 % less).

    Zero at a fixed price: what the owner saves is not the renter's.
    """
    return 0.0 if fixed_price else share * change


def break_even_tokens_per_s(cost_per_hour: float, price_per_million: float) -> float:
    """Qualified tokens/s from which on a system at `cost_per_hour` is not dearer than `price_per_million`."""
    if price_per_million <= 0:
        raise ValueError("needs a price above zero")
    return cost_per_hour * 1e6 / (3600 * price_per_million)
