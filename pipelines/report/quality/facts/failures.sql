-- Batches with a wrong checksum, the first 10000. Their own timestamp may be damaged: at_ms is from the last
-- sound batch before
WITH timed AS (
  SELECT file, position, size_bytes, crc_ok, last_value(CASE WHEN status IN ('ok', 'suspect')
    AND max_timestamp_ms BETWEEN 0 AND 253402300799999 THEN max_timestamp_ms END IGNORE NULLS)
    OVER (PARTITION BY log, stretch ORDER BY file, position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS at_ms
  FROM log_batches WHERE log IN (SELECT log FROM log_batches WHERE NOT crc_ok)
)
SELECT topic, partition, segment, position, size_bytes, CAST(at_ms AS BIGINT) AS at_ms
FROM timed JOIN log_segments USING (file) WHERE NOT crc_ok ORDER BY topic, partition, segment, position
LIMIT 10000
