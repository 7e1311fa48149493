-- Milliseconds of the years 2001 to 2286 have 13 digits; the same dates as seconds 10, as microseconds 16, as
-- nanoseconds 19
SELECT file, 1 AS amount, 'position ' || position || ': max timestamp ' || max_timestamp_ms AS detail
FROM sound
WHERE NOT is_control AND (max_timestamp_ms BETWEEN 1000000000 AND 9999999999
  OR max_timestamp_ms >= 1000000000000000)
