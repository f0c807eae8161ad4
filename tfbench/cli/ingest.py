"""`tfbench ingest`: run bundles into the warehouse."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tfbench.cli.options import JsonOption, WarehouseOption, print_json, warehouse_path

_WRITE_WAIT_S = 10.0


def ingest(
    bundles: Annotated[list[Path], typer.Argument(help="Run bundles, or folders that hold some at any depth.")],
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Take run BUNDLES into the warehouse; a run that is there already is left as it is.

    A run without a verdict gets one. A bundle that can't be taken doesn't keep the others out.
    Exit status: 0 done; 2 when a bundle could not be taken.
    """
    from tfbench.cli.waiting import Waiting
    from tfbench.core.errors import BundleError
    from tfbench.warehouse import Warehouse

    found = list(dict.fromkeys(bundle for path in bundles for bundle in _bundles(path)))
    new: list[str] = []
    known: list[str] = []
    refused: list[BundleError] = []
    with Warehouse.open(warehouse_path(warehouse), wait_s=_WRITE_WAIT_S) as store, Waiting() as waiting:
        for bundle in found:
            waiting.begin(f"{bundle} to be taken in")
            before = _run_count(store)
            try:
                run_id = store.ingest(bundle)
            except BundleError as error:
                refused.append(error)
                continue
            (new if _run_count(store) > before else known).append(run_id)
            _judge(store, run_id)
    if refused:
        more = f" (and {len(refused) - 1} more like it)" if len(refused) > 1 else ""
        raise BundleError(f"{refused[0]}{more}; {len(new)} new and {len(known)} known runs are in the warehouse")
    if json:
        print_json({"new": new, "known": known})
    else:
        typer.echo(f"{len(new)} new, {len(known)} already there")


def _bundles(path: Path) -> Iterator[Path]:
    """The bundles at or below `path`, in order; what an interrupted run left unfinished (.partial) is no bundle."""
    from tfbench.core.errors import BundleError
    from tfbench.ledger.bundle import CHECKSUMS_FILE, RUN_FILE

    count = 0
    try:
        for folder, below, files in os.walk(path, onerror=_unreadable):
            below.sort()
            below[:] = [name for name in below if not name.endswith(".partial")]
            if CHECKSUMS_FILE in files or RUN_FILE in files:
                below.clear()
                count += 1
                yield Path(folder)
    except OSError as error:
        raise BundleError(
            f"{error.filename}: can't be read ({error.strerror}); name a bundle, or its folder"
        ) from error
    if not count:
        raise BundleError(f"{path}: no run bundle there; `tfbench run` leaves them beside the warehouse, in *.bundles")


def _unreadable(error: OSError) -> None:
    raise error


def _run_count(store: Any) -> int:
    [(count,)] = store.con.execute("SELECT count(*) FROM runs").fetchall()
    return int(count)


def _judge(store: Any, run_id: str) -> None:
    """Give a measured run the verdicts that a study stores after ingest; without signals there is nothing to judge."""
    import orjson

    from tfbench.core.kinds import Mode
    from tfbench.verdict.stability import judge_stability
    from tfbench.verdict.validity import judge_validity

    unjudged = store.con.execute(
        "SELECT signals, status, mode FROM runs WHERE run_id = ? AND signals IS NOT NULL"
        " AND run_id NOT IN (SELECT run_id FROM verdicts)",
        [run_id],
    ).fetchall()
    for signals, status, mode in unjudged:
        verdicts = [judge_validity(orjson.loads(signals), status=status)]
        if mode != Mode.CLOSED:
            verdicts.append(judge_stability(store.con, run_id))
        store.add_verdicts([verdict.row(run_id) for verdict in verdicts])
