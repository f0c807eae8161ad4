"""Freezing a manifest: adapter defaults resolved, and the three ids that say what is the same."""

from dataclasses import dataclass
from typing import Any

from tfbench.core.jsonio import canonical_sha256
from tfbench.core.version import MANIFEST_SCHEMA_VERSION
from tfbench.manifest.adapters import adapter
from tfbench.manifest.limits import MAX_SAFE_INT
from tfbench.manifest.models import Manifest

WORKLOAD_TABLES = ("workload", "sampling", "load", "slo", "quality", "accounting")
SYSTEM_TABLES = ("model", "engine", "topology", "endpoint")
_ADDED = {
    "endpoint": ("preconnect", "include_usage"),
    "workload": ("shared_prefix_tokens", "classes"),
    "load": ("timestamps", "ramp", "retry", "cancel", "cache", "prime", "salt"),
}
"""Keys younger than their table. At their default they are left out, so that older ids stay what they were."""
_ADAPTERS: dict[str, dict[str, Any]] = {
    "endpoint": {"connections": "pooled", "fields": {}},
    "sampling": {"extra": {}},
}
"""Younger keys whose default is the adapter's, left out at this value where it is the adapter's own too."""
_ADDED_TABLES = ("hooks",)
"""Tables younger than the manifest, left out likewise."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A manifest with nothing left open.

    `document` is plain JSON data that `parse_manifest` reads back to the same ids; header secrets are "env:NAME" in
    it. A key added after the first version stands in it only where it isn't at its default. Ids are sha256 over
    RFC 8785 JSON: `workload_id` of the same test (with the seed), `system_id` of the same thing tested, `manifest_id`
    of everything, the name and schema_version included.
    """

    manifest: Manifest
    manifest_id: str
    workload_id: str
    system_id: str
    document: dict[str, Any]


def freeze(manifest: Manifest) -> Frozen:
    """`manifest` with its adapter's defaults filled in, its document and its ids."""
    resolved = resolve(manifest)
    document = {"schema_version": MANIFEST_SCHEMA_VERSION, **plain(resolved)}
    for table, keys in _ADDED.items():
        fields = type(getattr(resolved, table)).model_fields
        for key in keys:
            if getattr(getattr(resolved, table), key) == fields[key].default:
                del document[table][key]
    profile = adapter(manifest.endpoint.adapter)
    for table, plain_values in _ADAPTERS.items():
        for key, value in plain_values.items():
            if getattr(getattr(resolved, table), key) == value == getattr(profile, key):
                del document[table][key]
    for table in _ADDED_TABLES:
        if getattr(resolved, table) == Manifest.model_fields[table].default:
            del document[table]
    return Frozen(
        manifest=resolved,
        manifest_id=canonical_sha256(document),
        workload_id=canonical_sha256({table: document[table] for table in WORKLOAD_TABLES}),
        system_id=canonical_sha256({table: document[table] for table in SYSTEM_TABLES}),
        document=document,
    )


def plain(manifest: Manifest) -> dict[str, Any]:
    """`manifest` as plain JSON data, every key in it."""
    data: dict[str, Any] = _tidy(manifest.model_dump(mode="json"))
    return data


def resolve(manifest: Manifest) -> Manifest:
    """`manifest` with its adapter's defaults filled in."""
    profile = adapter(manifest.endpoint.adapter)
    endpoint, sampling, accounting = manifest.endpoint, manifest.sampling, manifest.accounting
    given = {"dialect": profile.dialect, "connections": profile.connections}
    filled: dict[str, Any] = {key: value for key, value in given.items() if getattr(endpoint, key) is None}
    endpoint = endpoint.model_copy(update=filled | {"fields": {**profile.fields, **endpoint.fields}})
    extra = {**profile.extra, **sampling.extra}
    ignore_eos = profile.ignore_eos if sampling.ignore_eos is None else sampling.ignore_eos
    sampling = sampling.model_copy(update={"ignore_eos": ignore_eos, "extra": extra})
    if not accounting.model_fields_set & {"bad", "excluded"}:
        accounting = accounting.model_copy(update={"bad": profile.bad, "excluded": profile.excluded})
    update = {"endpoint": endpoint, "sampling": sampling, "accounting": accounting}
    return manifest.model_copy(update=update)


def _tidy(value: Any) -> Any:
    """Whole floats as ints, as RFC 8785 prints them: the document then reads the same in every JSON library."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_SAFE_INT:
        return int(value)
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return value
