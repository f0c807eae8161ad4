"""The one place where header secrets are read from the environment."""

import os

from tfbench.core.errors import ManifestError
from tfbench.manifest.models import Endpoint
from tfbench.manifest.secrets import ENV, value_problem


def resolve_headers(endpoint: Endpoint) -> dict[str, str]:
    """The endpoint's headers with each "env:NAME" replaced by the environment's value.

    To be called at send time; the result is never stored or printed. An Authorization value without a scheme gets
    "Bearer ". ManifestError where a variable is missing, empty or can't be a header's value; it never holds the value.
    """
    resolved: dict[str, str] = {}
    for name, value in endpoint.headers.items():
        match = ENV.fullmatch(value)
        if match is None:
            resolved[name] = value
            continue
        variable = match.group(1)
        where = f"endpoint.headers.{name}: the environment variable {variable}"
        secret = os.environ.get(variable, "").strip()
        if not secret:
            raise ManifestError(f"{where} is not set; run: export {variable}=…")
        problem = value_problem(secret)
        if problem is not None:
            raise ManifestError(f"{where} {problem}")
        bare = name.lower() == "authorization" and " " not in secret
        resolved[name] = f"Bearer {secret}" if bare else secret
    return resolved
