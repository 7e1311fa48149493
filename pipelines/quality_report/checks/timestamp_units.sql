-- warning, sum, 0 batch: Batches with timestamps not in milliseconds
-- The ranges are those of timestamp_units
SELECT file, 1 AS amount, 'position ' || position || ': max timestamp ' || newest_ms || ', ' || unit AS detail
FROM log_times WHERE NOT is_control AND unit NOT IN ('none', 'milliseconds')
