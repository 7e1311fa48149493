-- Timestamps that are none, or in another unit, are left out
WITH plausible AS (
  SELECT *, max(max_timestamp_ms) OVER (PARTITION BY log, stretch ORDER BY file, position
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
  FROM sound WHERE NOT is_control AND max_timestamp_ms BETWEEN 10000000000 AND 999999999999999
)
SELECT file, highest - max_timestamp_ms AS amount, 'position ' || position || ': max timestamp '
  || make_timestamp_ms(CAST(max_timestamp_ms AS BIGINT)) || ' follows '
  || make_timestamp_ms(CAST(highest AS BIGINT)) AS detail
FROM plausible WHERE highest > max_timestamp_ms
