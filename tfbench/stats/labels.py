"""Method labels, with the measured coverage of the approximate ones."""

# Percent of nominal 95 % intervals that held the truth, (worst, best) over the cells of `benchmarks/coverage_labels.py`
# (M/M/1 queues at load 0.5 and 0.8, 100 to 3000 attempts a run), by figure and K. Made by
# `python benchmarks/coverage_labels.py --seed 1 --replications 1000`, not by hand.
MEASURED: dict[tuple[str, int], tuple[int, int]] = {}


def approximate(name: str, k: int, figure: str) -> str:
    """`approximate: NAME (K=k), measured coverage ≈ …`; K above 2 borrows the figure of K = 2."""
    measured = MEASURED.get((figure, min(k, 2)))
    if measured is None:
        return f"approximate: {name} (K={k}), coverage not measured"
    worst, best = measured
    span = f"{worst} %" if worst == best else f"{worst}–{best} %"
    return f"approximate: {name} (K={k}), measured coverage ≈ {span}"


def t_method(name: str, k: int) -> str:
    """`t on log of runs (K=5)`; fewer than 5 repeats are named as few."""
    return f"{name} (K={k})" if k >= 5 else f"{name} (K={k}, few)"
