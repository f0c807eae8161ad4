-- How many attempts of each run stand in each denominator. Reads: windows, attempt_facts.
SELECT
    w.run_id, w.load_value, w.arm, w.repeat, w.status,
    count(*) FILTER (counted) AS counted,
    count(*) FILTER (counted AND ok) AS ok,
    count(*) FILTER (counted AND good) AS good,
    count(*) FILTER (counted AND NOT ok) AS bad,
    count(*) FILTER (phase = 'measure' AND NOT superseded AND NOT eligible) AS excluded,
    count(*) FILTER (vacuous) AS vacuous,
    count(*) FILTER (
        counted AND ok AND ((tpot_ms IS NULL AND NOT tpot_met) OR (icl_max_ms IS NULL AND NOT icl_met))
    ) AS term_unknown,
    count(*) FILTER (counted AND ok AND output_tokens IS NULL) AS tokens_unknown,
    count(*) FILTER (counted AND shows_nothing) AS shows_nothing,
    count(*) FILTER (counted AND ok AND stream_known AND finish_reason IS NULL) AS no_finish_reason,
    count(*) FILTER (eligible AND in_window) AS ended_in_window,
    count(*) FILTER (eligible AND in_window AND good) AS good_in_window
FROM windows w LEFT JOIN attempt_facts a USING (run_index)
GROUP BY ALL
ORDER BY w.load_value, w.arm, w.repeat, w.run_id
