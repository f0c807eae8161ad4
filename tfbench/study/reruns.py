"""Further runs in place of those that a slow client spoiled: chosen by the client's signals, never by results."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tfbench.manifest import Manifest, RunPlan, expand


def most_again(planned: int, asked: int | None) -> int:
    """How many runs (pairs) may be made again of so many planned ones: those asked for, by default half as many."""
    return math.ceil(planned / 2) if asked is None else asked


def runs_again(manifest: Manifest, spoiled: Iterable[float], made: Sequence[RunPlan], most: int) -> list[RunPlan]:
    """A further repeat for each load in `spoiled`, `most` in all; those `made` tell where repeats go on."""
    wanted = Counter(list(spoiled)[:most])
    if not wanted:
        return []
    first = {load: 1 + max(plan.repeat for plan in made if plan.load_value == load) for load in wanted}
    repeats = max(first[load] + count for load, count in wanted.items())
    plans = [
        plan
        for plan in expand(manifest, repeats)
        if (load := plan.load_value) in wanted and first[load] <= plan.repeat < first[load] + wanted[load]
    ]
    start = 1 + max(plan.order_index for plan in made)
    return [dataclasses.replace(plan, order_index=start + i) for i, plan in enumerate(plans)]


def again_words(count: int, what: str) -> str:
    """What is told of them."""
    return (
        f"this machine's client was slow in {count} {what}{'' if count == 1 else 's'} and spoiled what is asked of"
        f" {'it' if count == 1 else 'them'}: as many more are made"
    )
