"""Method labels, with the measured coverage of the approximate ones."""

# Percent of nominal 95 % intervals that held the truth, (worst, best) over the cells of `benchmarks/coverage_labels.py`
# (M/M/1 and M/H2/1 queues at load 0.5 and 0.8, two correlation times to 10,000 attempts a run) that show it in at least
# a quarter of the runs, by figure and K. Made by `python -m benchmarks.coverage_labels --seed 1`, not by hand.
MEASURED: dict[tuple[str, int], tuple[int, int]] = {
    ("fraction", 1): (93, 100),
    ("fraction", 2): (96, 100),
    ("fraction, no score", 1): (89, 100),
    ("fraction, no score", 2): (87, 100),
    ("fraction, no score, one bound", 1): (100, 100),
    ("fraction, no score, one bound", 2): (100, 100),
    ("fraction, one bound", 1): (92, 100),
    ("fraction, one bound", 2): (100, 100),
    ("gaps", 1): (99, 100),
    ("gaps", 2): (98, 100),
    ("gaps, one bound", 1): (98, 100),
    ("gaps, one bound", 2): (99, 100),
    ("no events, one bound", 1): (96, 99),
    ("no events, one bound", 2): (98, 100),
    ("quantile", 1): (97, 99),
    ("quantile", 2): (96, 99),
    ("quantile, one bound", 1): (95, 100),
    ("quantile, one bound", 2): (99, 100),
    ("ratio", 1): (90, 99),
    ("ratio", 2): (93, 99),
}

# Bounds that hold less often than this, in percent, are not shown.
LEAST = 90


def approximate(name: str, k: int, figure: str, level: float) -> str:
    """`approximate: NAME (K=1, within this run only), measured coverage ≈ …`; only level 95 % was measured.

    The coverage is that of runs that don't differ: one run can't tell how far runs do, nor can two. K above 2, where
    the runs show no spread, claims no coverage.
    """
    measured = MEASURED.get((figure, k))
    span = "within this run only" if k == 1 else "within these runs only" if k == 2 else "no spread between runs"
    head = f"approximate: {name} (K={k}, {span})"
    if measured is None or level != 0.95:
        return f"{head}, coverage not measured"
    worst, best = measured
    return f"{head}, measured coverage ≈ {f'{worst} %' if worst == best else f'{worst}–{best} %'}"


def withheld(figure: str, k: int) -> str | None:
    """Why an approximate method's bounds aren't shown: they were measured to hold too rarely. None where they serve."""
    measured = MEASURED.get((figure, min(k, 2)))
    if measured is None or measured[0] >= LEAST:
        return None
    return f"bounds withheld: those of such runs were measured to hold in {measured[0]} %, not 95 %"


def t_method(name: str, k: int) -> str:
    """`t on log of runs (K=5)`; fewer than 5 repeats are named as few."""
    return f"{name} (K={k})" if k >= 5 else f"{name} (K={k}, few)"
