"""`tfbench sql`: a query over the warehouse."""

from typing import Annotated

import typer

from tfbench.cli.options import JsonOption, WarehouseOption, print_json, warehouse_path


def sql(
    query: Annotated[str, typer.Argument(help='DuckDB SQL, e.g. "select * from runs".')],
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Print the rows of QUERY over the warehouse's tables and views."""
    from tfbench.warehouse import Warehouse

    with Warehouse.open(warehouse_path(warehouse), read_only=True) as store:
        frame = store.sql(query)
    if json:
        import orjson

        print_json(orjson.loads(frame.to_json(orient="records", date_format="iso")))
    else:
        typer.echo(frame.to_string(index=False) if len(frame) else "no rows")
