"""The contract of a study: read, validated, frozen, hashed, compared, expanded to runs."""

from tfbench.manifest.adapters import AdapterProfile, adapter, adapter_names
from tfbench.manifest.diff import Difference, diff
from tfbench.manifest.freezing import Frozen, freeze
from tfbench.manifest.headers import resolve_headers
from tfbench.manifest.models import Manifest
from tfbench.manifest.plan import RunPlan, expand
from tfbench.manifest.reading import load_manifest, parse_manifest

__all__ = [
    "AdapterProfile",
    "Difference",
    "Frozen",
    "Manifest",
    "RunPlan",
    "adapter",
    "adapter_names",
    "diff",
    "expand",
    "freeze",
    "load_manifest",
    "parse_manifest",
    "resolve_headers",
]
