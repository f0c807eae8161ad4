-- What says whether one run's load itself was fit. Parameters: $run_ids VARCHAR[]. Reads: attempt_facts, attempts, streams.
WITH measured AS (
    SELECT * FROM attempts WHERE list_contains($run_ids, run_id) AND role = 'load' AND phase = 'measure'
),
lags AS (
    SELECT count(client_lag_ms) AS client_lag_n, quantile_disc(client_lag_ms, 0.99) AS client_lag_p99_ms
    FROM attempt_facts
    WHERE phase = 'measure' AND client_lag_ms IS NOT NULL
),
sends AS (
    SELECT
        count(*) AS scheduled_n,
        count(sent_ns) AS sent_n,
        count(*) FILTER (sent_ns IS NULL AND dispatched_ns IS NOT NULL AND outcome IN ('connect_error', 'timeout'))
            AS refused_n
    FROM measured
),
chunks AS (
    SELECT
        unnest(t_ns) AS t_ns, unnest(user_ns) AS user_ns, unnest(kind) AS kind, unnest(blur_ns) AS blur_ns,
        stamp_source
    FROM streams JOIN measured USING (run_id, attempt_id)
),
blurs AS (
    SELECT count(blur_ns) AS output_chunks, count(*) FILTER (blur_ns > 1000000) AS blurred_chunks
    FROM chunks
    WHERE kind IN ('text', 'reasoning', 'tool', 'empty')
),
reads AS (
    SELECT
        count(user_ns - t_ns) AS kernel_to_user_lag_n,
        quantile_disc((user_ns - t_ns) / 1e6, 0.99) AS kernel_to_user_lag_p99_ms
    FROM chunks
    WHERE stamp_source = 'kernel' AND user_ns IS NOT NULL AND t_ns IS NOT NULL
)
SELECT
    scheduled_n, sent_n, refused_n, client_lag_n, client_lag_p99_ms, output_chunks, blurred_chunks, kernel_to_user_lag_n,
    kernel_to_user_lag_p99_ms, (SELECT ttft_limit_ms FROM policy) AS ttft_limit_ms
FROM sends, lags, blurs, reads
