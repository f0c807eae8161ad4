"""Prices and waits that no number or run could hold are refused, with the limit named."""

import re
from typing import Any

import pytest

from tfbench.core.errors import ManifestError
from tfbench.manifest import parse_manifest
from tfbench.manifest.limits import MAX_RUN_S

TIMEOUTS = ("connect_s", "first_byte_s", "idle_s", "total_s")


def _cost(**prices: float) -> dict[str, Any]:
    return {"model": {"name": "m"}, "cost": {"resources": [{"name": "gpu", "hourly": 1, **prices}]}}


def _wait(name: str, seconds: float) -> dict[str, Any]:
    return {"model": {"name": "m"}, "endpoint": {"timeouts": {name: seconds}}}


def _most(document: dict[str, Any]) -> tuple[str, float]:
    """The key that a document is refused for, and the most it may hold."""
    with pytest.raises(ManifestError) as refused:
        parse_manifest(document, "file")
    found = re.fullmatch(r"file: (\S+): must be at most (\S+), got .*", str(refused.value))
    assert found is not None, str(refused.value)
    return found[1], float(found[2])


@pytest.mark.parametrize(
    ("prices", "key", "most"),
    [
        ({"hourly": 1e308, "count": 1e308}, "hourly", 1e9),
        ({"hourly": 1e9 + 1}, "hourly", 1e9),
        ({"count": 1e6 + 1}, "count", 1e6),
    ],
)
def test_a_price_beyond_reason_is_refused(prices: dict[str, float], key: str, most: float) -> None:
    assert _most(_cost(**prices)) == (f"cost.resources[0].{key}", most)


@pytest.mark.parametrize("prices", [{"hourly": 0}, {"hourly": 1e9, "count": 1e6}, {"hourly": 2.5, "count": 0.5}])
def test_any_other_price_is_taken(prices: dict[str, float]) -> None:
    [resource] = parse_manifest(_cost(**prices), "file").cost.resources
    assert resource.hourly == prices["hourly"]


@pytest.mark.parametrize("name", TIMEOUTS)
def test_every_timeout_has_a_most(name: str) -> None:
    assert _most(_wait(name, MAX_RUN_S * 1.01)) == (f"endpoint.timeouts.{name}", MAX_RUN_S)
    assert getattr(parse_manifest(_wait(name, MAX_RUN_S), "file").endpoint.timeouts, name) == MAX_RUN_S
