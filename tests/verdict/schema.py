"""As much of JSON Schema as verdict.schema.json uses."""

from typing import Any

_TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip
_KNOWN = {"type", "properties", "required", "items", "enum", "const", "anyOf", "$ref", "additionalProperties"}
_TOLD = {"title", "description", "default", "$defs", "$schema", "propertyNames"}


def check(value: Any, schema: dict[str, Any]) -> None:
    """Raises AssertionError where `value` isn't as `schema` says."""
    _check(value, schema, schema["$defs"], "$")


def _check(value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str) -> None:
    assert set(schema) <= _KNOWN | _TOLD, f"{at}: {set(schema) - _KNOWN - _TOLD}"
    if "$ref" in schema:
        _check(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, at)
        return
    if "anyOf" in schema:
        assert any(_fits(value, one, defs, at) for one in schema["anyOf"]), f"{at}: {value!r}"
        return
    if "type" in schema:
        assert isinstance(value, _TYPES[schema["type"]]), f"{at}: {value!r} is no {schema['type']}"
        assert schema["type"] not in ("integer", "number") or not isinstance(value, bool), at
    assert value in schema.get("enum", [value]) and value == schema.get("const", value), f"{at}: {value!r}"
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema["required"]) <= set(value) <= set(schema["properties"]), f"{at}: {sorted(value)}"
        for key, one in value.items():
            _check(one, schema["properties"][key], defs, f"{at}.{key}")
    if isinstance(value, list):
        for i, one in enumerate(value):
            _check(one, schema.get("items", {}), defs, f"{at}[{i}]")


def _fits(value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str) -> bool:
    try:
        _check(value, schema, defs, at)
    except AssertionError:
        return False
    return True
