"""Arrays in, frozen dataclasses out, no I/O: intervals, quantiles, ratios, fractions, slopes. Start at `combine`."""
