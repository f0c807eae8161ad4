"""The warehouse fixtures of the metrics' tests serve here too."""

from tests.metrics.conftest import add_run, con, warehouse

__all__ = ["add_run", "con", "warehouse"]
