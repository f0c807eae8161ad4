from pathlib import Path

import pytest

from tfbench.core.errors import StorageError
from tfbench.report.page import write_page

PAGE = "<!doctype html>\n<title>a page</title>\n"


def test_a_page_is_written_anew_over_a_page_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert write_page(PAGE, path).read_text() == PAGE
    path.write_text("<!DOCTYPE HTML><p>older")
    assert write_page(PAGE, path).read_text() == PAGE
    path.write_text("")
    assert write_page(PAGE, path).read_text() == PAGE


@pytest.mark.parametrize("held", [b"DUCK\0\1\2", b'name = "manifest"\n', b"\xff\xfe", b" "])
def test_what_is_no_page_is_not_written_over(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / "w.duckdb"
    path.write_bytes(held)
    with pytest.raises(StorageError, match="isn't a page, so it stays as it is"):
        write_page(PAGE, path)
    assert path.read_bytes() == held


def test_a_mistyped_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"there is no such folder for the report; make it, or name another$"):
        write_page(PAGE, tmp_path / "new" / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_plotly_beside_the_page_is_written_once(tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_page(PAGE, tmp_path / name, "file")
    beside = tmp_path / "plotly.min.js"
    assert beside.stat().st_size > 1_000_000
    stamp = beside.stat().st_mtime_ns
    write_page(PAGE, tmp_path / "a.html", "file")
    assert beside.stat().st_mtime_ns == stamp
    write_page(PAGE, tmp_path / "a.html", "cdn")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.html", "b.html", "plotly.min.js"]


def test_a_folder_is_no_place_for_a_page(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="can't write the report"):
        write_page(PAGE, tmp_path)
