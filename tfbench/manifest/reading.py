"""From a file to a Manifest: read, apply --set and --url, validate. Every fault is one line, never a traceback."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from tfbench.core.errors import ManifestError
from tfbench.core.version import MANIFEST_SCHEMA_VERSION
from tfbench.manifest.adapters import adapter
from tfbench.manifest.arrivals import read_arrivals
from tfbench.manifest.base import one_line
from tfbench.manifest.files import read_text
from tfbench.manifest.models import Manifest
from tfbench.manifest.problems import explain, has_null
from tfbench.manifest.sets import parse_set, put

Sources = Mapping[tuple[str, ...], str]
"""Key paths that did not come from the file, and what they came from."""


def load_manifest(path: Path, sets: Sequence[str] = (), url: str | None = None) -> Manifest:
    """The manifest in `path` (TOML, or a frozen JSON document) with each `--set` and then `--url` applied.

    A manifest without a name gets the file's. A file named by `load.timestamps` is read too, relative to the folder of
    `path`, and its numbers take its place. ManifestError: one line with the file (or the flag), the field and the
    mend.
    """
    label = one_line(str(path))
    document = _read(path, label)
    sources: dict[tuple[str, ...], str] = {}
    for text in sets:
        keys, value = parse_set(text)
        # Removed, a key that can be unset would get its default back.
        put(document, keys, value, keep_null=has_null(keys))
        sources[keys] = f"--set {'.'.join(keys)}"
    if url is not None and isinstance(document.setdefault("endpoint", {}), dict):
        document["endpoint"]["url"] = url
        sources[("endpoint", "url")] = "--url"
    document.setdefault("name", path.stem)
    load = document.get("load")
    if isinstance(load, dict) and isinstance(load.get("timestamps"), str | dict):
        source = _source(("load", "timestamps"), label, sources)
        where = source if source.endswith("load.timestamps") else f"{source}: load.timestamps"
        load["timestamps"] = read_arrivals(load["timestamps"], path.parent, where)
    return parse_manifest(document, label, sources)


def parse_manifest(document: Mapping[str, Any], label: str, sources: Sources | None = None) -> Manifest:
    """The manifest that `document` is: a parsed TOML file, or the JSON document of a frozen one.

    `label` names the document in errors; a path in `sources` is named by its own source instead. ManifestError.
    """
    content = dict(document)
    version = content.pop("schema_version", MANIFEST_SCHEMA_VERSION)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ManifestError(f"{label}: schema_version: expected {MANIFEST_SCHEMA_VERSION}; remove it")
    if version > MANIFEST_SCHEMA_VERSION:
        newest = f"this tfbench reads up to {MANIFEST_SCHEMA_VERSION}"
        raise ManifestError(f"{label}: schema_version: {version} is newer, {newest}; upgrade tfbench")
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        where, text = explain(error)
        source = _source(where, label, sources or {})
        # "--set load.rate: load.rate: …" would say it twice.
        repeated = text.startswith(f"{source.removeprefix('--set ')}: ")
        raise ManifestError(f"--set {text}" if repeated else f"{source}: {text}") from None
    try:
        adapter(manifest.endpoint.adapter)
    except ManifestError as error:
        source = _source(("endpoint", "adapter"), label, sources or {})
        raise ManifestError(one_line(f"{source}: {error}")) from None
    return manifest


def _source(where: tuple[str, ...], label: str, sources: Sources) -> str:
    # The longest path given by a flag at or above the field, else one below it (a flag that made a wrong table).
    above = [keys for keys in sources if where[: len(keys)] == keys]
    below = [keys for keys in sources if keys[: len(where)] == where]
    nearest = max(above, key=len) if above else below[0] if below and where else None
    return one_line(sources[nearest]) if nearest is not None else label


def _read(path: Path, label: str) -> dict[str, Any]:
    text = read_text(path, label, "manifest file")
    if path.suffix.lower() == ".json" or (path.suffix.lower() != ".toml" and text.lstrip().startswith("{")):
        return _read_json(text, label)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ManifestError(f"{label}: nested too deeply; flatten it") from None
    except tomllib.TOMLDecodeError as error:
        reason = _toml_reason(str(error), text)
        raise ManifestError(one_line(f"{label}: not valid TOML: {reason}; mend it there")) from None
    except ValueError:
        # A number of thousands of digits, which Python refuses to convert.
        raise ManifestError(f"{label}: holds a number that is too long; shorten it") from None


def _toml_reason(reason: str, text: str) -> str:
    return reason.replace("at end of document", f"at line {text.count(chr(10)) + 1}, the end")


def _read_json(text: str, label: str) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        reason = f"{error.msg} (at line {error.lineno}, column {error.colno})"
        raise ManifestError(one_line(f"{label}: not valid JSON: {reason}; mend it there")) from None
    if not isinstance(document, dict):
        raise ManifestError(f"{label}: not a manifest: a JSON object is expected; give a frozen manifest")
    return document
