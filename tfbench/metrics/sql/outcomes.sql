-- How many attempts of role load ended how, in every run and phase of a study. Parameters: $study_id.
SELECT load_value, arm, repeat, phase, outcome, count(*) AS n
FROM attempts JOIN runs USING (run_id)
WHERE study_id = $study_id AND role = 'load'
GROUP BY ALL
ORDER BY ALL
