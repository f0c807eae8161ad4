"""The warehouse: all studies' facts in one DuckDB file, with numbered migrations and idempotent ingest."""

from tfbench.warehouse.location import default_path
from tfbench.warehouse.result import Rows, json_text
from tfbench.warehouse.store import Warehouse

__all__ = ["Rows", "Warehouse", "default_path", "json_text"]
