"""Sending: pacer, wire client, pool, worker process, and the facts they leave behind."""
