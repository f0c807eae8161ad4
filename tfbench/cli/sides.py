"""What `compare` and `gate` share: two studies, from one warehouse or two."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tfbench.cli.options import READ_WAIT_S, warehouse_path

SidesWarehouseOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--warehouse",
        help="Warehouse file; given twice, the first study's and the second's. Default as for other verbs.",
        show_default=False,
    ),
]
SidesHtmlOption = Annotated[
    Path | None,
    typer.Option("--html", help="Write the effects here as a self-contained page.", show_default=False),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        help='What may differ: a manifest key as load.repeats, "test" for any of the test, "cache" for cache hits,'
        ' "simulated" for simulated against measured runs.',
        show_default=False,
    ),
]


def same_study(base: Any, candidate: Any) -> bool:
    """Whether two `Arm`s are one and the same."""
    return bool((base.study_id, base.arm) == (candidate.study_id, candidate.arm))


def refuse_same_study(base: Any, candidate: Any) -> None:
    """UsageError where two `Arm`s are one and the same: beside itself a study proves nothing."""
    from tfbench.core.errors import UsageError

    if same_study(base, candidate):
        arm = "" if base.arm is None else f":{base.arm}"
        raise UsageError(f"base and candidate are the same study, {base.study_id}{arm}; name another")


@contextlib.contextmanager
def open_sides(names: Sequence[str], warehouses: Sequence[Path] | None) -> Iterator[list[tuple[Any, Any]]]:
    """(connection, Arm) of either study in `names`: an id, a unique part of its start, a name or "last", or one of
    these, a colon and an arm. Raises UsageError."""
    from tfbench.core.errors import UsageError
    from tfbench.verdict.arms import read_arm
    from tfbench.warehouse import Warehouse

    paths = list(warehouses or [warehouse_path(None)])
    if len(paths) > 2:
        raise UsageError("--warehouse: give one for both studies, or one for each")
    with contextlib.ExitStack() as stack:
        stores = [
            stack.enter_context(Warehouse.open(path, read_only=True, wait_s=READ_WAIT_S))
            for path in (paths[:1] if paths[0].resolve() == paths[-1].resolve() else paths)
        ]
        yield [
            (store.con, read_arm(store.con, *_study_and_arm(store, name)))
            for store, name in zip((stores[0], stores[-1]), names, strict=True)
        ]


def _study_and_arm(store: Any, text: str) -> tuple[str, str | None]:
    from tfbench.core.errors import UsageError

    try:
        return store.resolve_study(text), None
    except UsageError:
        study, colon, arm = text.rpartition(":")
        if not colon:
            raise
        return store.resolve_study(study), arm
