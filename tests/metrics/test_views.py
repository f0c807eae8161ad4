"""The view that people ask by SQL holds what the figures are made from."""

import duckdb
import pandas as pd

from tests.ledger.builder import answer
from tests.metrics.conftest import AddRun
from tfbench.metrics import attempt_figures
from tfbench.metrics.views import add_views, metric_columns


def test_the_view_is_what_the_figures_are_made_from(con: duckdb.DuckDBPyConnection, add_run: AddRun) -> None:
    for repeat in range(2):
        add_run([answer(i, i * 20, ttft=50 + i % 7, gap=10 + repeat) for i in range(20)],
                run_id=f"run-{repeat}", repeat=repeat)  # fmt: skip
    add_views(con)
    add_views(con)  # a second time does no harm
    columns = metric_columns(con)
    assert {"study_id", "load_value", "ttft_ms", "tpot_ms", "icl_max_ms", "e2e_ms", "good", "counted"} <= columns
    shared = [name for name in attempt_figures(con, "study-1").columns if name in columns]
    facts = attempt_figures(con, "study-1")[shared]
    names = ", ".join('"' + name + '"' for name in shared)
    view = con.execute(f"SELECT {names} FROM attempt_metrics").df()
    keys = ["repeat", "scheduled_ns"]
    pd.testing.assert_frame_equal(
        *(frame.sort_values(keys).reset_index(drop=True) for frame in (view, facts)), check_dtype=False
    )
    assert len(view) == 40 and view["ttft_ms"].notna().all()


def test_the_view_stays_with_the_connection(con: duckdb.DuckDBPyConnection) -> None:
    add_views(con)
    kept = "SELECT count(*) FROM duckdb_views() WHERE view_name = 'attempt_metrics' AND NOT temporary"
    assert con.cursor().execute(kept).fetchall() == [(0,)]
