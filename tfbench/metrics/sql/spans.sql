-- From when to when each attempt of role load of one run was in flight. Reads: attempts, windows.
-- Parameters: $run_id; $since, 'sent_ns' or 'scheduled_ns'. One that never ended has the window's end.
SELECT since_ns AS start_ns, greatest(since_ns, coalesce(end_ns, window_end_ns)) AS end_ns
FROM (
    SELECT
        CASE $since WHEN 'sent_ns' THEN sent_ns ELSE scheduled_ns END AS since_ns,
        a.end_ns,
        w.end_ns AS window_end_ns
    FROM attempts a JOIN windows w USING (run_id)
    WHERE run_id = $run_id AND role = 'load'
)
WHERE since_ns IS NOT NULL
ORDER BY ALL
