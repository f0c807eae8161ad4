import re

import pytest

from tfbench.core.kinds import Outcome
from tfbench.metrics import FIGURES
from tfbench.report.naming import ENDED, endings, figure_words, outcome_words, reason_words
from tfbench.verdict.validity import judge_validity, rules, signals_with_limits


def test_every_outcome_has_words() -> None:
    assert set(ENDED) == set(Outcome)
    assert outcome_words("ok") == "answered well" and outcome_words("never heard of") == "never heard of"


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_words_and_no_two_the_same(name: str) -> None:
    assert not re.search(r"_|\bp\d", figure_words(name))
    assert [other for other in FIGURES if figure_words(other) == figure_words(name)] == [name]


def test_reasons_of_every_signal_lose_its_name() -> None:
    broken = {rule.signal: rule.limit + (1.25 if rule.relation == "<=" else -0.5) for rule in rules(None)}
    reasons = judge_validity(signals_with_limits(broken, None)).reasons
    assert len(reasons) == len(broken)
    for reason in reasons:
        assert "_" in reason and "_" not in reason_words(reason) and "limit" in reason_words(reason)
    assert reason_words("the run is interrupted") == "the run is interrupted"


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({}, ""),
        ({"unfinished": 47, "timeout": 0}, "47 of 240 requests had no answer by the end of drain"),
        ({"timeout": 3, "rejected": 1}, "3 of 240 requests timed out, 1 was rejected (429 or 503)"),
        ({"odd": 1200}, "1,200 of 240 requests odd"),
    ],
)
def test_endings(counts: dict[str, int], says: str) -> None:
    assert endings(counts, 240) == says
