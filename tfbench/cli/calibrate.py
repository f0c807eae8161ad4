"""`tfbench calibrate`: what this machine's client can measure."""

from typing import Annotated, Any

import typer

from tfbench.cli.options import JsonOption, WarehouseOption, print_json, warehouse_path
from tfbench.core.exitcodes import ExitCode


def calibrate(
    seconds: Annotated[float, typer.Option(min=5, max=3600, help="About how long to measure.")] = 60,
    warehouse: WarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Measure this machine's client against a server that knows the truth, and keep the result.

    Streams of 64 chunks, on loopback: how wrong times are, what a chunk costs, and the highest load that is valid.
    Exit status: 0 done; 4 when no load was valid here.
    """
    from tfbench.study.calibrate import calibrate as measure
    from tfbench.study.calibrate import store_calibration
    from tfbench.warehouse import Warehouse

    path = warehouse_path(warehouse)
    # A warehouse that can't be used is told before a minute is spent.
    Warehouse.open(path).close()
    figures = measure(seconds, lambda text: typer.echo(text, err=True))
    store_calibration(path, figures)
    if json:
        print_json(figures)
    else:
        for line in _summary(figures):
            typer.echo(line)
        typer.echo(f"kept in {path}, table calibrations")
    if figures["highest_valid_requests_per_s"] is None:
        raise typer.Exit(int(ExitCode.INVALID))


_LIMITS = {
    "client": "more was INVALID",
    "server": "the truth server could send no more",
    "time": "time was up; more may be possible (--seconds)",
    "range": "nothing faster was tried",
}


def _summary(figures: dict[str, Any]) -> list[str]:
    best = figures["at_highest"]
    if best is None:
        return ["no load was valid on this machine now:", *(f"  {reason}" for reason in figures["failed_for"])]
    rate, chunks = figures["highest_valid_requests_per_s"], figures["highest_valid_chunks_per_s"]
    lines = [f"highest valid load  {rate:g} requests/s, {chunks:,.0f} chunks/s ({_LIMITS[figures['limited_by']]})"]
    for name, key in (("TTFT error", "ttft_error_ms"), ("ICL error", "icl_error_ms"), ("client lag", "client_lag_ms")):
        lines.append(f"{name:<20}p50 {best[key]['p50']} ms, p99 {best[key]['p99']} ms there")
    lines.append(f"{'cost':<20}{best['cpu_us_per_chunk']} µs of CPU per chunk; receive stamps: {best['stamps']}")
    lines += [f"  {reason}" for reason in figures["failed_for"]]
    return lines
