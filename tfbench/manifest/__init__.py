"""The contract of a study: read, validated, frozen, hashed, compared, expanded to runs."""

from tfbench.manifest.adapters import AdapterProfile, adapter, adapter_names
from tfbench.manifest.diff import Difference, diff, diff_documents
from tfbench.manifest.freezing import Frozen, freeze
from tfbench.manifest.headers import resolve_headers
from tfbench.manifest.hooks import Hooks, Prime, engine_profile_arg
from tfbench.manifest.models import Manifest
from tfbench.manifest.plan import RunPlan, expand
from tfbench.manifest.reading import load_manifest, parse_manifest
from tfbench.manifest.secrets import socket_path
from tfbench.manifest.traffic import Cancel, Ramp, Retry, retry_delay_s
from tfbench.manifest.workload import TrafficClass

__all__ = [
    "AdapterProfile",
    "Cancel",
    "Difference",
    "Frozen",
    "Hooks",
    "Manifest",
    "Prime",
    "Ramp",
    "Retry",
    "RunPlan",
    "TrafficClass",
    "adapter",
    "adapter_names",
    "diff",
    "diff_documents",
    "engine_profile_arg",
    "expand",
    "freeze",
    "load_manifest",
    "parse_manifest",
    "resolve_headers",
    "retry_delay_s",
    "socket_path",
]
