"""Bounds that keep a typo from asking for absurd memory or time. Each is named in the error that cites it."""

MAX_ARRIVALS = 10_000_000
"""Scheduled arrivals of one run (an int64 each, and a ledger row each)."""
MAX_RUN_S = 30 * 86_400.0
"""Length of one run in seconds; also keeps every offset far inside int64 nanoseconds."""
MAX_RUNS = 10_000
"""Runs of one study: load points × repeats."""
MAX_USERS = 100_000
"""Concurrent users of a closed loop, and slots of a capped one."""
MAX_TOKENS = 1_000_000
"""Tokens of one prompt or one answer; unbounded length distributions are clipped here."""
MAX_FILE_BYTES = 64 * 2**20
"""Size of a manifest file."""
MAX_SAFE_INT = 2**53 - 1
"""Largest whole number that canonical JSON (RFC 8785) can carry."""
MAX_RETRIES = 20
"""Retries of one task."""
MAX_CLASSES = 1_000
"""Classes of one workload."""
MAX_TIMESTAMPS = 1_000_000
"""Recorded arrivals that a manifest may hold; they are part of its frozen document."""
MAX_PRIMES = 10_000
"""Requests that prime a run; they are sent one after the other."""
