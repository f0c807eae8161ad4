"""Words every room shares: errors, exit codes, outcome and kind enums, clocks, canonical JSON."""
