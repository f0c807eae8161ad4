"""Profiles of engines: a TOML file with the settings, and how long a step takes or on what it runs.

    title = "Llama 3.1 8B on one H100"
    [engine]                    # fields of EngineConfig
    max_num_seqs = 256
    [hardware]                  # fields of Hardware; or [step_time], the coefficients of StepTime
    device = "h100-sxm"
    model = "llama-3.1-8b"

`[misbehave]` may follow. Paths of devices and models are seen from the profile's folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfbench.bounds.reading import Table, profile_names, profile_path, read_table
from tfbench.core.errors import UsageError
from tfbench.engine.config import EngineConfig, config_from_table

_TABLES = ("step_time", "hardware", "misbehave")


def engine_profile_names() -> tuple[str, ...]:
    """The engine profiles that ship with this installation, sorted."""
    return profile_names("engines")


def engine_profile(name_or_path: str | Path) -> EngineConfig:
    """The engine of a shipped profile's name, or of a TOML file; UsageError names the file, the field and the mend."""
    path = profile_path("engines", name_or_path)
    file = read_table(path)
    for text in ("title", "source"):
        if file.take(text, "", optional=True) is not None:
            file.text(text, "give a text, or leave it out")
    settings = dict(_optional_table(file, "engine"))
    for name in _TABLES:
        if name in settings:
            raise file.error(f"engine.{name}", f"it is a table of its own; write [{name}]")
        if file.take(name, "", optional=True) is not None:
            settings[name] = dict(_optional_table(file, name))
    file.done()
    if "step_time" in settings and "hardware" in settings:
        raise file.error("step_time", "hardware says how long a step takes; leave one of the two out")
    for field in ("device", "model"):
        _resolve(settings.get("hardware"), field, path.parent)
    try:
        return config_from_table(settings)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _optional_table(file: Table, name: str) -> Mapping[str, Any]:
    if file.take(name, "", optional=True) is None:
        return {}
    return file.table(name, f"write [{name}] and its fields below").values


def _resolve(hardware: dict[str, Any] | None, field: str, folder: Path) -> None:
    """A path in `hardware` is one from the profile's folder."""
    value = None if hardware is None else hardware.get(field)
    if hardware is not None and isinstance(value, str) and ("/" in value or value.endswith(".toml")):
        hardware[field] = str(folder / value)
