-- The segments with most damaged bytes, each with its first damaged range of a batch, else its first
WITH damaged AS (
  SELECT file, sum(size_bytes) AS damaged, count(*) AS ranges,
    arg_min(position, row(reason IN ('garbage', 'unreadable'), position)) AS position
  FROM log_damage GROUP BY file ORDER BY damaged DESC, file LIMIT $shown
)
SELECT s.topic, s.partition, s.segment, CAST(d.damaged AS BIGINT), d.ranges, d.position, q.size_bytes, q.reason,
  q.detail, s.log, s.file, b.crc_computed
FROM damaged d JOIN log_segments s USING (file) JOIN log_damage q USING (file, position)
LEFT JOIN log_batches b USING (file, position)
ORDER BY d.damaged DESC, file
