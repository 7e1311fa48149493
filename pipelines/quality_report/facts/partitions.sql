-- Bytes of every partition, all its copies together, the worst first
WITH damage AS (
  SELECT file, sum(size_bytes) AS bytes, count(*) AS ranges FROM log_damage GROUP BY file
), summed AS (
  SELECT topic, partition, CAST(count(*) AS BIGINT) AS segments, CAST(sum(records) AS BIGINT) AS records,
    CAST(sum(length) AS BIGINT) AS bytes, CAST(coalesce(sum(d.bytes), 0) AS BIGINT) AS damaged,
    CAST(sum(tail_bytes) AS BIGINT) AS tail, CAST(coalesce(sum(d.ranges), 0) AS BIGINT) AS ranges
  FROM log_segments LEFT JOIN damage d USING (file) GROUP BY topic, partition
)
FROM summed ORDER BY damaged / greatest(bytes, 1) DESC, tail / greatest(bytes, 1) DESC, bytes DESC, topic, partition
