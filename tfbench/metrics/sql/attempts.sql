-- One row per attempt of role load: its times as durations, whether it counts, and whether it is good.
-- Parameters: $run_ids VARCHAR[], $side VARCHAR. Reads: attempts, streams, policy, windows. Durations are milliseconds.
--
-- A side other than 'seen' takes off what the client itself may have added: with 'least' each duration is as short as
-- its own lag and blur allow (a chunk came up to blur_ns before its stamp), with 'most' as long.
--
-- seq orders rows by run, then schedule. Unknown is NULL. The *_or_inf columns are what quantiles run over: +inf where
-- the thing never came, NULL only where the facts don't say.
WITH clocks AS (
    -- With unit "task" the last try stands for the task, on the clock and in the phase of its first.
    SELECT
        a.*,
        w.run_index,
        p.* EXCLUDE (study_id),
        w.start_ns AS window_start_ns, w.end_ns AS window_end_ns, w.end_inclusive,
        unit = 'task' AND "try" < max("try") OVER task AS superseded,
        CASE WHEN unit = 'task' THEN min(scheduled_ns) OVER task ELSE scheduled_ns END AS clock_ns,
        CASE WHEN unit = 'task' THEN first_value(phase) OVER task_in_order ELSE phase END AS clock_phase
    FROM attempts a JOIN windows w USING (run_id) JOIN policy p USING (study_id)
    WHERE list_contains($run_ids, run_id) AND role = 'load'
    WINDOW
        task AS (PARTITION BY run_id, task_id, turn),
        task_in_order AS (PARTITION BY run_id, task_id, turn ORDER BY "try")
),
marked AS (
    -- A chunk that shows nothing is output where it is known to have carried a token, or where the whole stream shows
    -- nothing.
    SELECT
        run_id, attempt_id, t_ns, tokens, kind,
        CASE WHEN $side = 'seen' OR blur_ns IS NULL THEN t_ns
            ELSE list_transform(t_ns, lambda t, i: t - coalesce(blur_ns[i], 0)) END AS early_ns,
        -- A duration begins with the one stamp and finishes with the other.
        CASE $side WHEN 'most' THEN early_ns ELSE t_ns END AS opens_ns,
        CASE $side WHEN 'least' THEN early_ns ELSE t_ns END AS closes_ns,
        list_transform(kind, lambda k: coalesce(k IN ('text', 'reasoning', 'tool'), false)) AS visible,
        CASE WHEN list_contains(kind, 'empty')
            THEN list_transform(kind, lambda k, i: coalesce(k = 'empty' AND tokens[i] > 0, false)) END AS carried
    FROM streams
    WHERE list_contains($run_ids, run_id) AND t_ns IS NOT NULL AND kind IS NOT NULL
),
outputs AS (
    SELECT
        run_id, attempt_id,
        closes_ns[list_position(visible, true)] AS first_visible_ns,
        CASE WHEN NOT list_contains(output, true) THEN coalesce(
            closes_ns[list_position(kind, 'finish')],
            list_where(closes_ns, list_transform(kind, lambda k: k = 'usage'))[-1]
        ) END AS finish_ns,
        list_where(opens_ns, output) AS begin_ns,
        list_where(closes_ns, output) AS out_ns,
        list_where(tokens, output) AS out_tokens
    FROM (
        SELECT
            *,
            CASE
                WHEN carried IS NULL THEN visible
                WHEN list_contains(visible, true) OR list_contains(carried, true)
                    THEN list_transform(visible, lambda v, i: v OR carried[i])
                ELSE list_transform(kind, lambda k, i: coalesce(k = 'empty' AND tokens[i] IS DISTINCT FROM 0, false))
            END AS output
        FROM marked
    )
),
gaps AS (
    SELECT
        *, list_transform(range(1, len(out_ns)), lambda i: greatest(out_ns[i + 1] - begin_ns[i], 0) / 1e6) AS gaps_ms
    FROM outputs
),
chunks AS (
    SELECT
        *,
        len(out_ns) AS n_output_chunks,
        list_sort(gaps_ms) AS sorted_gaps_ms,
        len(out_tokens) > 0 AND list_count(out_tokens) = len(out_tokens)
            AND list_min(out_tokens) = 1 AND list_max(out_tokens) = 1 AS one_token_per_chunk
    FROM gaps
),
lagged AS (
    SELECT
        *,
        -- Lag is ours alone: taken up late, or written late once the connection was there.
        ((dispatched_ns - coalesce(slot_ns, scheduled_ns))
            + (sent_ns - CASE WHEN new_connection THEN connected_ns WHEN NOT new_connection THEN dispatched_ns END)) / 1e6
            AS client_lag_ms,
        clock_ns
            + CASE WHEN $side = 'least' THEN (greatest(coalesce(client_lag_ms, 0), 0) * 1e6)::BIGINT ELSE 0 END AS from_ns
    FROM clocks
),
durations AS (
    SELECT
        c.* EXCLUDE (phase),
        clock_phase AS phase,
        k.attempt_id IS NOT NULL AS stream_known,
        coalesce(n_output_chunks, 0) AS n_output_chunks,
        coalesce(one_token_per_chunk, false) AS one_token_per_chunk,
        gaps_ms, sorted_gaps_ms,
        -- An ok answer that shows nothing though tokens came, as with weights that write nothing, began with its first
        -- output chunk; where even that is missing, at the latest with its finish.
        outcome = 'ok' AND first_visible_ns IS NULL AND output_tokens IS DISTINCT FROM 0 AS silent,
        CASE WHEN silent THEN coalesce(out_ns[1], CASE WHEN output_tokens > 0 THEN finish_ns END)
            ELSE first_visible_ns END AS first_ns,
        (first_ns - from_ns) / 1e6 AS ttft_ms,
        (first_ns - sent_ns) / 1e6 AS ttft_service_ms,
        greatest(out_ns[-1] - begin_ns[1], 0) / 1e6 AS output_ms,
        CASE WHEN n_output_chunks >= 2 AND output_tokens >= 2 THEN output_ms / (output_tokens - 1) END AS tpot_ms,
        CASE WHEN n_output_chunks >= 2 AND output_tokens > out_tokens[1]
            THEN output_ms / (output_tokens - out_tokens[1]) END AS tpot_after_first_ms,
        list_transform(icl_terms, lambda t: {
            'ms': sorted_gaps_ms[CAST(ceil(t.p * len(gaps_ms) - 1e-9) AS BIGINT)], 'limit_ms': t.limit_ms
        }) AS icl_values,
        sorted_gaps_ms[-1] AS icl_max_ms,
        sorted_gaps_ms[CAST(ceil(0.99 * len(gaps_ms) - 1e-9) AS BIGINT)] AS icl_p99_ms,
        (end_ns - from_ns) / 1e6 AS e2e_ms,
        (end_ns - sent_ns) / 1e6 AS e2e_service_ms
    FROM lagged c LEFT JOIN chunks k USING (run_id, attempt_id)
),
voids AS (
    -- One token or one chunk has no time per token and no gap; that is known, unlike a token count nobody gave.
    SELECT
        *,
        tpot_ms IS NULL AND (coalesce(output_tokens < 2, false) OR icl_void) AS tpot_void
    FROM (SELECT *, stream_known AND n_output_chunks < 2 AS icl_void FROM durations)
),
terms AS (
    SELECT
        *,
        outcome = 'ok' AS ok,
        NOT superseded AND (outcome = 'ok' OR list_contains(bad, outcome)) AS eligible,
        coalesce(
            end_ns >= window_start_ns AND (end_ns < window_end_ns OR (end_inclusive AND end_ns = window_end_ns)), false
        ) AS in_window,
        ttft_limit_ms IS NULL OR coalesce(ttft_ms <= ttft_limit_ms, false) AS ttft_met,
        e2e_limit_ms IS NULL OR coalesce(e2e_ms <= e2e_limit_ms, false) AS e2e_met,
        tpot_limit_ms IS NULL OR coalesce(tpot_ms <= tpot_limit_ms, tpot_void) AS tpot_met,
        coalesce(icl_max_ms <= icl_limit_ms, icl_limit_ms IS NULL OR icl_void)
            AND coalesce(list_bool_and(list_transform(icl_values, lambda v: coalesce(v.ms <= v.limit_ms, icl_void))), true)
            AS icl_met,
        (tpot_limit_ms IS NOT NULL AND tpot_void) OR ((icl_limit_ms IS NOT NULL OR len(icl_terms) > 0) AND icl_void)
            AS term_void,
        coalesce(ttft_limit_ms, tpot_limit_ms, icl_limit_ms, e2e_limit_ms) IS NOT NULL OR len(icl_terms) > 0 AS has_slo,
        coalesce(try_cast(quality->>'$.passed' AS BOOLEAN), NOT judged) AS quality_passed,
        -- How near to a timeout, the one failure that latency leads to; +inf for what failed.
        CASE WHEN outcome = 'ok' THEN coalesce(
            greatest(
                ttft_service_ms / first_byte_timeout_ms, icl_max_ms / idle_timeout_ms, e2e_service_ms / total_timeout_ms
            ),
            0
        ) ELSE 'inf'::DOUBLE END AS fail_strain
    FROM voids
)
SELECT
    row_number() OVER (ORDER BY run_index, clock_ns, attempt_id) AS seq,
    run_index, run_id, attempt_id, request_id, task_id, "try", phase, outcome, clock_ns AS scheduled_ns, sent_ns, end_ns,
    superseded,
    eligible,
    eligible AND phase = 'measure' AS counted,
    in_window,
    ok,
    ttft_ms, ttft_service_ms, tpot_ms, tpot_after_first_ms, icl_max_ms, icl_p99_ms, e2e_ms, e2e_service_ms,
    client_lag_ms,
    CASE WHEN ttft_ms IS NOT NULL THEN ttft_ms WHEN stream_known OR NOT ok THEN 'inf'::DOUBLE END AS ttft_or_inf_ms,
    CASE WHEN ttft_service_ms IS NOT NULL THEN ttft_service_ms
        WHEN ttft_ms IS NULL AND (stream_known OR NOT ok) THEN 'inf'::DOUBLE END AS ttft_service_or_inf_ms,
    -- Where no ok attempt of the run shows it (nobody counts tokens), failures alone don't make it infinite.
    CASE WHEN tpot_ms IS NOT NULL THEN tpot_ms
        WHEN NOT ok AND coalesce(bool_or(tpot_ms IS NOT NULL) FILTER (ok) OVER run, true) THEN 'inf'::DOUBLE
        END AS tpot_or_inf_ms,
    CASE WHEN tpot_after_first_ms IS NOT NULL THEN tpot_after_first_ms
        WHEN NOT ok AND coalesce(bool_or(tpot_after_first_ms IS NOT NULL) FILTER (ok) OVER run, true)
            THEN 'inf'::DOUBLE END AS tpot_after_first_or_inf_ms,
    CASE WHEN ok THEN e2e_ms ELSE 'inf'::DOUBLE END AS e2e_or_inf_ms,
    CASE WHEN ok THEN e2e_service_ms ELSE 'inf'::DOUBLE END AS e2e_service_or_inf_ms,
    gaps_ms, n_output_chunks, one_token_per_chunk, stream_known,
    prompt_tokens, output_tokens,
    ttft_met, tpot_met, icl_met, e2e_met, quality_passed,
    ok AND ttft_met AND tpot_met AND icl_met AND e2e_met AND quality_passed AS good,
    eligible AND phase = 'measure' AND ok AND term_void AS vacuous,
    silent AND first_ns IS NOT NULL AS shows_nothing, finish_reason,
    fail_strain,
    -- How near to bad: the largest ratio of a latency to its SLO limit, without an SLO to its timeout; +inf for what
    -- isn't good for another reason.
    CASE
        WHEN NOT (ok AND quality_passed) THEN 'inf'::DOUBLE
        WHEN NOT ttft_met AND ttft_ms IS NULL OR NOT tpot_met AND tpot_ms IS NULL
            OR NOT icl_met AND icl_max_ms IS NULL OR NOT e2e_met AND e2e_ms IS NULL THEN 'inf'::DOUBLE
        ELSE coalesce(
            greatest(
                ttft_ms / ttft_limit_ms, tpot_ms / tpot_limit_ms, icl_max_ms / icl_limit_ms, e2e_ms / e2e_limit_ms,
                list_max(list_transform(icl_values, lambda v: v.ms / v.limit_ms))
            ),
            CASE WHEN has_slo THEN 0 ELSE fail_strain END,
            0
        )
    END AS strain
FROM terms
WINDOW run AS (PARTITION BY run_index)
ORDER BY seq
