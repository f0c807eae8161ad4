"""tfbench measures LLM serving the way an auditor would: facts first, every figure with its interval.

    manifest = tfbench.load_manifest(Path("manifests/quickstart.toml"), url="http://127.0.0.1:8000/v1")
    done = tfbench.run_study(manifest, Path("tfbench.duckdb"))
    with tfbench.Warehouse.open(done.warehouse) as warehouse:
        frame = tfbench.figures(warehouse.con, done.study_id)

Names are imported when they are first used, so that `import tfbench` costs nothing.
"""

import importlib
from typing import Any

from tfbench.core.version import VERSION as __version__

_HOMES = {
    "Manifest": "tfbench.manifest",
    "System": "tfbench.study.simulate",
    "TfbenchError": "tfbench.core.errors",
    "Warehouse": "tfbench.warehouse",
    "attempt_figures": "tfbench.metrics",
    "build_report": "tfbench.report",
    "engine_profile": "tfbench.engine.profile",
    "figures": "tfbench.metrics",
    "find_capacity": "tfbench.study.capacity",
    "freeze": "tfbench.manifest",
    "load_manifest": "tfbench.manifest",
    "outcomes": "tfbench.metrics",
    "parse_target": "tfbench.study.target",
    "run_figures": "tfbench.metrics",
    "run_study": "tfbench.study",
    "simulate_capacity": "tfbench.study.capacity",
    "simulate_study": "tfbench.study.simulate",
    "start_engine": "tfbench.engine.process",
    "write_html": "tfbench.report",
}

__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tfbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
