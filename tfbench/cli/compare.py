"""`tfbench compare`: two studies side by side, what got worse first."""

from typing import Annotated

import typer

from tfbench.cli.options import JsonOption, PlotlyOption, check_page, print_json
from tfbench.cli.sides import AllowOption, SidesHtmlOption, SidesWarehouseOption, open_sides, refuse_same_study


def compare(
    a: Annotated[
        str, typer.Argument(help='The base: a study id, a part of its start, a name, or "last"; or STUDY:ARM.')
    ],
    b: Annotated[str, typer.Argument(help="The candidate, likewise.")],
    allow: AllowOption = None,
    html: SidesHtmlOption = None,
    plotly: PlotlyOption = None,
    warehouse: SidesWarehouseOption = None,
    json: JsonOption = False,
) -> None:
    """Show every figure's effect of B against A with its interval, by load and bucket; what got worse comes first,
    then what got better.

    Runs judged INVALID are left out. Exit status: 0 shown, whatever it shows (`tfbench gate` judges); 2 when the
    studies aren't the same test, or their caches were not equally warm, and --allow doesn't let them pass.
    """
    from dataclasses import asdict

    from tfbench.core.errors import UsageError
    from tfbench.core.jsonio import finite
    from tfbench.report.side_by_side import print_comparison
    from tfbench.verdict.allowing import check_allowed
    from tfbench.verdict.arms import likeness, match_runs, refusal
    from tfbench.verdict.buckets import BUCKETS
    from tfbench.verdict.cells import build_cells
    from tfbench.verdict.compare import COMPARED
    from tfbench.verdict.compare import compare as compare_arms

    check_page(html, plotly)
    check_allowed(allow or (), "--allow")
    with open_sides((a, b), warehouse) as (base, candidate):
        refuse_same_study(base[1], candidate[1])
        matches = match_runs(base[1], candidate[1])
        alike = likeness(base[1], candidate[1], matches)
        refused = refusal(alike, allow or ())
        if refused is not None:
            raise UsageError(refused)
        cells = build_cells(base, candidate, matches, COMPARED, buckets=BUCKETS)
        found = compare_arms(base[1], candidate[1], alike, matches, cells)
    if html is not None:
        from tfbench.report.effects import comparison_page
        from tfbench.report.page import write_page

        write_page(comparison_page(found, plotly or "inline"), html, plotly or "inline")
        typer.echo(f"wrote {html}", err=True)
    if json:
        print_json(finite(asdict(found)))
    elif html is None:
        print_comparison(found)
