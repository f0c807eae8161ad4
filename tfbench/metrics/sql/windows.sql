-- The measured window of each run. Parameters: $run_ids VARCHAR[]. Reads: policy.
--
-- A timed run's window is [measure_start, measure_end). With a count, or all at once, it runs from the first measured
-- schedule to the last measured end, and that last end lies in it (end_inclusive). Its arrivals end before its drain does:
-- n of them span n mean gaps from the first on. Those that come with the first, as a closed loop's users may, end
-- no gap; where all do there is none, and arrivals_end_ns is NULL. A retry is no arrival.
WITH measured AS (
    SELECT
        run_id, scheduled_ns, end_ns, coalesce("try", 0) = 0 AS arrives,
        scheduled_ns > min(scheduled_ns) OVER (PARTITION BY run_id) AS later
    FROM attempts
    WHERE list_contains($run_ids, run_id) AND role = 'load' AND phase = 'measure'
),
spans AS (
    SELECT
        run_id, min(scheduled_ns) AS first_scheduled_ns, max(end_ns) AS last_end_ns,
        max(scheduled_ns) FILTER (arrives) AS last_arrival_ns,
        count(*) FILTER (arrives) / nullif(count(*) FILTER (arrives AND later), 0) AS arrivals_a_gap
    FROM measured
    GROUP BY run_id
),
runs_asked AS (
    SELECT r.*, p.by_count OR isinf(coalesce(r.load_value, 0)) AS by_count, s.* EXCLUDE (run_id)
    FROM runs r JOIN policy p USING (study_id) LEFT JOIN spans s USING (run_id)
    WHERE list_contains($run_ids, run_id)
)
SELECT
    row_number() OVER (ORDER BY load_value, arm, repeat, order_index, run_id) - 1 AS run_index,
    run_id, study_id, load_value, arm, repeat, order_index, mode, status,
    CASE WHEN by_count THEN first_scheduled_ns ELSE coalesce(measure_start_ns, first_scheduled_ns) END AS start_ns,
    CASE WHEN by_count THEN last_end_ns ELSE coalesce(measure_end_ns, last_end_ns) END AS end_ns,
    CASE WHEN by_count
        THEN first_scheduled_ns + ((last_arrival_ns - first_scheduled_ns) * arrivals_a_gap)::BIGINT
        ELSE coalesce(measure_end_ns, last_end_ns) END AS arrivals_end_ns,
    by_count OR measure_end_ns IS NULL AS end_inclusive
FROM runs_asked
ORDER BY run_index
