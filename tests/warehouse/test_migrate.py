"""Migrations: numbered, each applied once and whole."""

from pathlib import Path

import duckdb
import pytest

from tfbench.warehouse.migrate import applied_version, migrate, migrations

W = Path("w.duckdb")


def _folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.sql").write_text(text)
    return tmp_path


def test_the_shipped_ones_are_numbered() -> None:
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))


@pytest.mark.parametrize("names", [("0002_b",), ("0001_a", "0003_c"), ("0001_a", "0001_b"), ("first",)])
def test_numbers_without_gaps(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="NNNN_name|aren't numbered"):
        migrations(_folder(tmp_path, **dict.fromkeys(names, "SELECT 1")))


def test_only_what_is_pending_is_applied(tmp_path: Path) -> None:
    con = duckdb.connect()
    folder = _folder(tmp_path, **{"0001_a": "CREATE TABLE a (x INTEGER)"})
    migrate(con, W, read_only=False, folder=folder)
    con.execute("INSERT INTO a VALUES (1)")
    _folder(tmp_path, **{"0002_b": "ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 7; CREATE TABLE b (z INTEGER)"})
    migrate(con, W, read_only=False, folder=folder)
    migrate(con, W, read_only=False, folder=folder)
    assert con.execute("FROM a").fetchall() == [(1, 7)]
    assert con.execute("SELECT version, name FROM schema_migrations ORDER BY ALL").fetchall() == [(1, "a"), (2, "b")]


def test_a_failing_one_changes_nothing(tmp_path: Path) -> None:
    con = duckdb.connect()
    folder = _folder(
        tmp_path,
        **{
            "0001_a": "CREATE TABLE a (x INTEGER)",
            "0002_b": "CREATE TABLE b (x INTEGER); ALTER TABLE none ADD y INTEGER",
        },
    )
    with pytest.raises(duckdb.CatalogException):
        migrate(con, W, read_only=False, folder=folder)
    assert applied_version(con, W) == 1
    assert con.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall() == [
        ("a",),
        ("schema_migrations",),
    ]
