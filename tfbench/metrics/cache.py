"""How much of a run's prompts came from a prefix cache."""

CACHED_SHARE = """(
    SELECT sum(cached_tokens) / nullif(sum(prompt_tokens), 0) FROM attempts a
    WHERE a.run_id = r.run_id AND role = 'load' AND outcome = 'ok'
        AND cached_tokens IS NOT NULL AND prompt_tokens IS NOT NULL
)"""
"""SQL: cached ÷ all prompt tokens, over the ok attempts of a run `r` whose counts are known; NULL without any."""
