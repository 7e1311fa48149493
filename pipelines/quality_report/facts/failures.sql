-- Batches with a wrong checksum, the first 10000. Their own timestamp may be damaged: at_ms is from the last
-- sound batch before
WITH timed AS (
  SELECT b.file, b.position, b.size_bytes, b.crc_ok,
    last_value(CASE WHEN s.max_timestamp_ms BETWEEN 0 AND 253402300799999 THEN s.max_timestamp_ms END IGNORE NULLS) OVER (
      PARTITION BY b.log, b.stretch ORDER BY b.file, b.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS at_ms
  FROM log_batches b LEFT JOIN sound s USING (file, position) WHERE b.log IN (SELECT log FROM log_batches WHERE NOT crc_ok)
)
SELECT topic, partition, segment, position, size_bytes, CAST(at_ms AS BIGINT) AS at_ms
FROM timed JOIN log_segments USING (file) WHERE NOT crc_ok ORDER BY topic, partition, segment, position
LIMIT 10000
