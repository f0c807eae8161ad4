"""From a run bundle to rows: checked, all or nothing."""

import contextlib
from enum import StrEnum
from typing import Any

import duckdb

from tfbench.core.errors import BundleError
from tfbench.core.jsonio import dump_text
from tfbench.core.kinds import Outcome, Phase, Role
from tfbench.ledger.bundle import RUN_KEYS, Bundle

_JSON_KEYS = frozenset({"observed", "signals"})


def ingest_bundle(con: duckdb.DuckDBPyConnection, bundle: Bundle) -> str:
    """Insert a verified bundle in one transaction and return its run_id; a run already there is left alone.

    Raises BundleError when its rows break the ledger's contract, duckdb.Error when the database fails.
    """
    run_id = str(bundle.run["run_id"])
    con.begin()
    try:
        if not con.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchall():
            _check_rows(con, bundle, run_id)
            _insert_study(con, bundle)
            _check_study(con, bundle)
            _insert_run(con, bundle)
            for name, path in bundle.tables.items():
                con.execute(f"INSERT INTO {name} BY NAME SELECT * FROM read_parquet(?)", [str(path)])
        con.commit()
    except (duckdb.Error, BundleError):
        _rollback(con)
        raise
    return run_id


def _rollback(con: duckdb.DuckDBPyConnection) -> None:
    with contextlib.suppress(duckdb.TransactionException):  # a failed commit has already ended it
        con.rollback()


def _insert_study(con: duckdb.DuckDBPyConnection, bundle: Bundle) -> None:
    run = bundle.run
    columns = "study_id, manifest_id, workload_id, system_id, manifest, created_ns, tfbench_version, host"
    con.execute(
        f"INSERT INTO studies ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [
            run["study_id"],
            run["manifest_id"],
            run["workload_id"],
            run["system_id"],
            dump_text(bundle.manifest),
            run["created_ns"],
            run.get("tfbench_version"),
            _json(run.get("host")),
        ],
    )


def _check_study(con: duckdb.DuckDBPyConnection, bundle: Bundle) -> None:
    # Arms may differ in manifest and system, but a study asks one test: figures count by the study's manifest.
    study_id, workload_id = bundle.run["study_id"], bundle.run["workload_id"]
    if con.execute("SELECT 1 FROM studies WHERE study_id = ? AND workload_id <> ?", [study_id, workload_id]).fetchall():
        raise BundleError(f"{bundle.directory}: study {study_id} is in the warehouse with another workload_id")


def _insert_run(con: duckdb.DuckDBPyConnection, bundle: Bundle) -> None:
    values = [_json(bundle.run.get(key)) if key in _JSON_KEYS else bundle.run.get(key) for key in RUN_KEYS]
    con.execute(f"INSERT INTO runs ({', '.join(RUN_KEYS)}) VALUES ({', '.join('?' for _ in RUN_KEYS)})", values)


def _json(value: Any) -> str | None:
    return None if value is None else dump_text(value)


def _check_rows(con: duckdb.DuckDBPyConnection, bundle: Bundle, run_id: str) -> None:
    attempts, streams = str(bundle.tables["attempts"]), str(bundle.tables["streams"])
    for name, path in bundle.tables.items():
        others = _count(
            con, "SELECT count(*) FROM read_parquet($path) WHERE run_id <> $run_id", path=str(path), run_id=run_id
        )
        _refuse(bundle, name, others, f"rows of another run than {run_id}")
    for name in ("attempts", "streams"):
        query = "SELECT count(*) - count(DISTINCT attempt_id) FROM read_parquet($path)"
        twice = _count(con, query, path=str(bundle.tables[name]))
        _refuse(bundle, name, twice, "rows with an attempt_id given twice")
    for column, kinds in (("outcome", Outcome), ("phase", Phase), ("role", Role)):
        strange = _count(
            con,
            f"SELECT count(*) FROM read_parquet($path) WHERE NOT list_contains($known, {column})",
            path=attempts,
            known=_values(kinds),
        )
        _refuse(bundle, "attempts", strange, f"rows with an unknown {column}")
    orphans = _count(
        con,
        "SELECT count(*) FROM read_parquet($streams) ANTI JOIN read_parquet($attempts) USING (attempt_id)",
        streams=streams,
        attempts=attempts,
    )
    _refuse(bundle, "streams", orphans, "rows of an attempt that isn't there")
    uneven = _count(
        con,
        "SELECT count(*) FROM read_parquet($path) WHERE len(kind) <> len(t_ns) OR len(tokens) <> len(t_ns)"
        " OR len(user_ns) <> len(t_ns) OR len(blur_ns) <> len(t_ns)",
        path=streams,
    )
    _refuse(bundle, "streams", uneven, "rows whose lists differ in length")


def _values(kinds: type[StrEnum]) -> list[str]:
    return [kind.value for kind in kinds]


def _count(con: duckdb.DuckDBPyConnection, query: str, **parameters: Any) -> int:
    [(count,)] = con.execute(query, parameters).fetchall()
    return int(count)


def _refuse(bundle: Bundle, table: str, count: int, what: str) -> None:
    if count:
        raise BundleError(f"{bundle.tables[table]}: {count} {what}; the bundle breaks the ledger's contract")
