"""Keeps secrets out of whatever is stored or shown."""

from collections.abc import Iterable

MASK = "[redacted]"
_LEAST_CHARACTERS = 4
"""Shorter values would mask innocent text, and are no secrets."""


class Redactor:
    """Replaces every given secret, and what follows its scheme ("Bearer …"), by a mask."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part for secret in secrets for part in (secret, secret.partition(" ")[2])}
        known = sorted((p for p in parts if len(p) >= _LEAST_CHARACTERS), key=len, reverse=True)
        self._texts = tuple(known)
        self._bytes = tuple(part.encode() for part in known)

    def text(self, value: str) -> str:
        """`value` without secrets."""
        for secret in self._texts:
            value = value.replace(secret, MASK)
        return value

    def data(self, value: bytes) -> bytes:
        """`value` without secrets."""
        for secret in self._bytes:
            value = value.replace(secret, MASK.encode())
        return value
