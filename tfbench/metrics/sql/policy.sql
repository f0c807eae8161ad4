-- What a study's frozen manifest says about counting: one row per study of the runs asked for.
-- Parameters: $run_ids VARCHAR[].
--
-- An SLO term is a number, {max: number}, or (icl_ms only) {pNN: number}: the per-request NN-th percentile.
-- No hourly price at all leaves cost_per_hour NULL.
WITH manifests AS (
    SELECT study_id, manifest, manifest->'$.slo.icl_ms' AS icl
    FROM studies
    WHERE study_id IN (SELECT study_id FROM runs WHERE list_contains($run_ids, run_id))
)
SELECT
    study_id,
    coalesce(manifest->>'$.accounting.unit', 'attempt') AS unit,
    coalesce(
        from_json(manifest->'$.accounting.bad', '["VARCHAR"]'),
        ['timeout', 'rejected', 'http_error', 'connect_error', 'stream_error', 'disconnected', 'unfinished', 'unsent']
    ) AS bad,
    coalesce(try_cast(manifest->>'$.slo.ttft_ms.max' AS DOUBLE), try_cast(manifest->>'$.slo.ttft_ms' AS DOUBLE))
        AS ttft_limit_ms,
    coalesce(try_cast(manifest->>'$.slo.tpot_ms.max' AS DOUBLE), try_cast(manifest->>'$.slo.tpot_ms' AS DOUBLE))
        AS tpot_limit_ms,
    coalesce(try_cast(manifest->>'$.slo.e2e_ms.max' AS DOUBLE), try_cast(manifest->>'$.slo.e2e_ms' AS DOUBLE))
        AS e2e_limit_ms,
    coalesce(try_cast(icl->>'$.max' AS DOUBLE), try_cast(icl->>'$' AS DOUBLE)) AS icl_limit_ms,
    list_transform(
        list_filter(coalesce(json_keys(icl), []), lambda k: regexp_full_match(k, 'p[0-9]+([.][0-9]+)?')),
        lambda k: {'p': CAST(k[2:] AS DOUBLE) / 100, 'limit_ms': CAST(icl->>('$."' || k || '"') AS DOUBLE)}
    ) AS icl_terms,
    1000 * coalesce(try_cast(manifest->>'$.endpoint.timeouts.first_byte_s' AS DOUBLE), 60) AS first_byte_timeout_ms,
    1000 * coalesce(try_cast(manifest->>'$.endpoint.timeouts.idle_s' AS DOUBLE), 30) AS idle_timeout_ms,
    1000 * coalesce(try_cast(manifest->>'$.endpoint.timeouts.total_s' AS DOUBLE), 600) AS total_timeout_ms,
    coalesce(manifest->>'$.quality.judge', 'none') <> 'none' AS judged,
    manifest->>'$.load.count' IS NOT NULL AS by_count,
    coalesce(manifest->>'$.cost.currency', 'USD') AS currency,
    list_sum(
        list_transform(
            from_json(manifest->'$.cost.resources', '[{"hourly": "DOUBLE", "count": "DOUBLE"}]'),
            lambda r: r.hourly * coalesce(r.count, 1)
        )
    ) AS cost_per_hour
FROM manifests
