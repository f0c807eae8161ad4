"""Where the warehouse lies when nobody says."""

import os
from pathlib import Path

ENVIRONMENT_VARIABLE = "TFBENCH_WAREHOUSE"


def default_path() -> Path:
    """`$TFBENCH_WAREHOUSE` if set and not empty, else `tfbench.duckdb` in the working directory."""
    return Path(os.environ.get(ENVIRONMENT_VARIABLE) or "tfbench.duckdb")
