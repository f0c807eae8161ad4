"""Views for people who ask by SQL: each attempt's latencies as figures count them, over a whole warehouse."""

import duckdb

from tfbench.metrics.facts import read_sql

ATTEMPT_METRICS = "attempt_metrics"
_ASKED = "list_contains($run_ids, run_id)"
_LEFT_OUT = "seq, run_index, run_id, gaps_ms, superseded, eligible, fail_strain, strain"


def add_views(con: duckdb.DuckDBPyConnection) -> None:
    """Make `attempt_metrics` for this connection alone: one row per attempt of role load, durations in milliseconds.

    It's made from the same SQL as the figures, of all runs, so nothing can differ from a report.
    """
    tables = ", ".join(
        f"{table} AS ({_plain(read_sql(file))})"
        for table, file in (("policy", "policy"), ("windows", "windows"), ("attempt_facts", "attempts"))
    )
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW {ATTEMPT_METRICS} AS WITH {tables}"
        f" SELECT study_id, run_id, load_value, arm, repeat, a.* EXCLUDE ({_LEFT_OUT})"
        " FROM attempt_facts a JOIN windows USING (run_index, run_id)"
    )


def _plain(sql: str) -> str:
    """The SQL of a derived table, of all runs and as seen."""
    return sql.replace(_ASKED, "true").replace("$side", "'seen'")


def metric_columns(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """The view's columns, once it is there."""
    rows = con.execute(
        "SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [ATTEMPT_METRICS]
    ).fetchall()  # fmt: skip
    return frozenset(str(name) for (name,) in rows)
