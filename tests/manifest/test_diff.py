"""Which variables differ between two manifests."""

from typing import Any

from tfbench.manifest import Difference, diff, parse_manifest

BASE: dict[str, Any] = {
    "name": "a",
    "model": {"name": "m"},
    "endpoint": {"adapter": "vllm", "url": "http://a/v1"},
    "workload": {"input_tokens": {"dist": "lognormal", "mean": 512, "cv": 0.8}},
}


def differences(**tables: dict[str, Any] | str) -> tuple[Difference, ...]:
    changed = {
        key: {**BASE.get(key, {}), **value} if isinstance(value, dict) else value for key, value in tables.items()
    }
    return diff(parse_manifest(BASE, "a"), parse_manifest({**BASE, **changed}, "b"))


def test_equal_manifests_do_not_differ() -> None:
    assert differences() == ()


def test_names_places_prices_and_seeds_are_secondary() -> None:
    found = differences(
        name="b",
        endpoint={"url": "http://b/v1", "headers": {"X-A": "1"}, "timeouts": {"total_s": 9}},
        load={"seed": 3, "repeats": 7},
        cost={"currency": "EUR"},
        storage={"text": True},
    )
    assert [item.path for item in found] == [
        "name",
        "endpoint.url",
        "endpoint.headers.X-A",
        "endpoint.timeouts.total_s",
        "load.repeats",
        "load.seed",
        "cost.currency",
        "storage.text",
    ]
    assert not any(item.primary for item in found)


def test_variables_are_primary_and_carry_both_values() -> None:
    assert differences(engine={"version": "2"}) == (Difference("engine.version", None, "2", True),)
    assert differences(load={"rates": [2, 4]}) == (Difference("load.rates", [1], [2, 4], True),)


def test_what_shapes_the_load_is_primary() -> None:
    found = differences(
        endpoint={"connections": "per_request"},
        workload={"classes": [{"name": "a", "share": 1}]},
        load={"ramp": {"to": 4}, "retry": {"max": 1}, "cancel": {"share": 0.5, "after_s": 1}},
    )
    paths = ["endpoint.connections", "workload.classes", "load.ramp", "load.retry", "load.cancel"]
    assert [item.path for item in found] == paths
    assert all(item.primary for item in found)
    # A default is shown as what it is, though a frozen document leaves it out.
    assert (found[0].a, found[0].b, found[2].a) == ("pooled", "per_request", None)
    [replay] = [item for item in differences(load={"timestamps": [0, 1]}) if item.path == "load.timestamps"]
    assert replay.primary
    assert differences(endpoint={"preconnect": 8}) == (Difference("endpoint.preconnect", 0, 8, True),)


def test_distributions_of_one_kind_are_compared_by_parameter() -> None:
    same = {"input_tokens": {"dist": "lognormal", "mean": 256, "cv": 0.8}}
    assert differences(workload=same) == (Difference("workload.input_tokens.mean", 512, 256, True),)
    [other] = differences(workload={"input_tokens": 512})
    assert (other.path, other.b, other.primary) == ("workload.input_tokens", 512, True)
    [kind] = differences(workload={"input_tokens": {"dist": "uniform", "min": 1, "max": 9}})
    assert kind.path == "workload.input_tokens"


def test_an_adapter_changes_what_it_resolves_to() -> None:
    assert [item.path for item in differences(endpoint={"adapter": "openai"})] == [
        "endpoint.adapter",
        "sampling.ignore_eos",
    ]
