-- warning, max, 86400000 ms: How far a batch's timestamp lies before that of an earlier batch
-- Credible timestamps alone (batch_times)
WITH plausible AS (
  SELECT t.file, t.position, t.credible_newest_ms AS ms, max(t.credible_newest_ms) OVER (PARTITION BY s.log, s.stretch
    ORDER BY t.file, t.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
  FROM log_times t JOIN log_segments s USING (file) WHERE NOT t.is_control AND t.credible_newest_ms IS NOT NULL
)
SELECT file, highest - ms AS amount, 'position ' || position || ': max timestamp ' || make_timestamp_ms(ms)
  || ' follows ' || make_timestamp_ms(highest) AS detail
FROM plausible WHERE highest > ms
