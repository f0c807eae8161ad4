"""Fields of a request's body: renamed, left out or added, by a manifest or an adapter."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from tfbench.manifest.base import Text, refusal
from tfbench.manifest.limits import MAX_SAFE_INT

SET_BY = {
    "model": "model.name",
    "messages": "workload",
    "prompt": "workload",
    "stream": "endpoint.stream",
    "max_tokens": "workload.output_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "seed": "sampling.seed",
    "stop": "sampling.stop",
    "ignore_eos": "sampling.ignore_eos",
}
"""The fields that have a key of their own, and which."""
_DEEPEST = 8


def _check_fields(value: dict[str, str | bool]) -> dict[str, str | bool]:
    for name, new in value.items():
        if not name:
            raise refusal('has a field without a name; write it as { max_tokens = "max_completion_tokens" }')
        others = [other for other, theirs in value.items() if theirs == new]
        if new is not False and len(others) > 1:
            raise refusal(f'is "{new}", and so is {others[0]}; two fields can\'t have one name', name)
    return value


def _field(value: Any) -> Any:
    if value is False or (isinstance(value, str) and value):
        return value
    raise refusal('must be another name for the field, or false to leave it out; for example "max_completion_tokens"')


def _check_extra(value: dict[str, Any]) -> dict[str, Any]:
    for name, given in value.items():
        if name in SET_BY:
            raise refusal(f"has a key of its own: set {SET_BY[name]} instead", name)
        if not _is_json(given, _DEEPEST):
            raise refusal("must be a text, a number, true, false, a list or a table", name)
    return value


def _is_json(value: Any, depth: int) -> bool:
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_json(item, depth - 1) for item in value)
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(key, str) and _is_json(item, depth - 1) for key, item in value.items())
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return isinstance(value, bool) or abs(value) <= MAX_SAFE_INT
    return value is None or isinstance(value, str)


Fields = Annotated[
    dict[str, Annotated[Text | Literal[False], BeforeValidator(_field)]],
    AfterValidator(_check_fields),
]
"""Body fields by the names that they have in the OpenAI API: another name, or false for one that isn't sent."""
Extra = Annotated[dict[str, Any], AfterValidator(_check_extra)]
"""Further body fields, sent as they are."""
