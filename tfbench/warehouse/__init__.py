"""The warehouse: all studies' facts in one DuckDB file, with numbered migrations and idempotent ingest."""

from tfbench.warehouse.location import default_path
from tfbench.warehouse.store import Warehouse

__all__ = ["Warehouse", "default_path"]
