"""Judgements, kept apart from facts: is the measurement fit (validity), is the system stable."""
