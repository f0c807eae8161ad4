"""What differs between two manifests, after their defaults are resolved."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfbench.manifest.freezing import SYSTEM_TABLES, WORKLOAD_TABLES, plain, resolve
from tfbench.manifest.models import Manifest
from tfbench.manifest.toml import toml_key, toml_value

_SECONDARY = ("endpoint.url", "endpoint.headers", "endpoint.timeouts", "load.seed", "load.salt", "load.repeats")


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs; None where a side has no such key.

    `primary`: a variable of the system or the workload that an experimenter changes. Names, prices, storage, seeds,
    repeats, and where and with which limits the endpoint is reached, are not.
    """

    path: str
    a: Any
    b: Any
    primary: bool

    @property
    def toml(self) -> str:
        """b's value as a line of TOML, with a's in its comment; a comment alone where b has none."""
        was = "was unset" if self.a is None else f"was {toml_value(self.a)}"
        now = f"# {self.path} is unset, " if self.b is None else f"{self.path} = {toml_value(self.b)}  # "
        return now + was + (", primary" if self.primary else "")


def diff(a: Manifest, b: Manifest) -> tuple[Difference, ...]:
    """The differences between two manifests, in the manifest's own order; lists are compared whole."""
    return diff_documents(plain(resolve(a)), plain(resolve(b)))


def diff_documents(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The differences between two frozen manifests' documents, as a warehouse holds them."""
    found = _walk((), dict(a), dict(b))
    return tuple(Difference(".".join(map(toml_key, path)), x, y, _is_primary(path)) for path, x, y in found)


def _walk(path: tuple[str, ...], a: Any, b: Any) -> list[tuple[tuple[str, ...], Any, Any]]:
    same_shape = isinstance(a, dict) and isinstance(b, dict) and a.get("dist") == b.get("dist")
    if not same_shape:
        return [] if a == b else [(path, a, b)]
    keys = [*a, *(key for key in b if key not in a)]
    return [item for key in keys for item in _walk((*path, key), a.get(key), b.get(key))]


def _is_primary(path: tuple[str, ...]) -> bool:
    text = ".".join(path)
    secondary = any(text == name or text.startswith(f"{name}.") for name in _SECONDARY)
    return path[0] in SYSTEM_TABLES + WORKLOAD_TABLES and not secondary
