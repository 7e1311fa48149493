-- What a group had committed at a time, and how far behind the end of each log it was then
-- Parameters:
--   wanted_group string: Group id
--   at_time timestamp: The time
-- Columns:
--   topic string: Topic of the committed offset
--   partition int: Its partition
--   committed_offset bigint: The last offset that the group had committed by then
--   commit_timestamp timestamp: When it was committed
--   end_offset bigint: Offset after the last record with a timestamp up to then; null without one
--   lag bigint: end_offset - committed_offset, at least 0; null without an end_offset
WITH commits AS (
  SELECT topic, partition, committed_offset, commit_timestamp, is_tombstone,
    row_number() OVER (PARTITION BY topic, partition ORDER BY record_offset DESC, segment) AS age
  FROM consumer_offsets
  WHERE `group` = wanted_group AND record_timestamp <= at_time
), held AS (
  SELECT * FROM commits WHERE age = 1 AND committed_offset IS NOT NULL
), ends AS (
  SELECT r.topic, r.partition, max(r.offset) + 1 AS end_offset
  FROM records r
  JOIN segments s ON s.topic = r.topic AND s.partition = r.partition AND s.segment = r.segment
    AND s.generation = r.generation AND r.batch_position < s.decoded_bytes
  WHERE r.timestamp <= at_time AND r.topic IN (SELECT topic FROM held)
  GROUP BY r.topic, r.partition
)
SELECT h.topic, h.partition, h.committed_offset, h.commit_timestamp, e.end_offset,
  if(e.end_offset < h.committed_offset, 0, e.end_offset - h.committed_offset)
FROM held h LEFT JOIN ends e ON e.topic = h.topic AND e.partition = h.partition
