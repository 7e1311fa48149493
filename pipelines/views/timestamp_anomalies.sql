-- Records whose timestamps are missing, out of order, in the future or in a wrong unit, by segment and timestamp type.
-- A segment expires by its highest timestamp: one in the future keeps it, and all segments after it, on disk. A file whose
-- modification time is before 2011 does not show what is in the future. Control records count too, but for out_of_order: their
-- times are of a broker's clock, those between them of producers' clocks. An empty batch, of which the log cleaner removed all
-- records, keeps its segment by its max timestamp too
-- Parameters:
--   max_disorder_ms bigint DEFAULT $MAX_AHEAD_MS: how far a timestamp may lie below the highest of the batches before it
--   max_future_ms bigint DEFAULT $MAX_AHEAD_MS: how far a timestamp may lie after the modification time of its segment's file
-- Columns: those of a segment, then
--   timestampType int: 0 create time, 1 log append time, -1 none
--   anomaly string: none: no timestamp; seconds, microseconds, nanoseconds: a timestamp in that unit by mistake (`timestamp_units`); future; out_of_order, by ordinary timestamps alone
--   records bigint: Records that have it; for out_of_order the records of the batches in which one has it
--   first_offset bigint: The first of them; of an empty batch its base offset
--   lowest_ms bigint: Lowest of their timestamps, as stored
--   highest_ms bigint: Highest of their timestamps, as stored
--   off_by_ms bigint: How far the worst one is off: below the highest before, or after the file's modification time; null for none
--   blocked_bytes bigint: Bytes that time-based retention keeps because of it; null for none
WITH listed AS (
  SELECT s.topic, s.partition, s.segment, t.modified_ms,
    CAST(sum(CAST(s.length AS DECIMAL(38, 0))) OVER (PARTITION BY s.topic, s.partition, s.partition_dir
      ORDER BY s.file_base_offset DESC) AS BIGINT) AS bytes_from_here
  FROM segments s JOIN log_stretches t ON t.topic = s.topic AND t.partition = s.partition AND t.segment = s.segment
), stamped AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, batch_position, offset, timestampType, timestamp_ms,
    is_control AS is_unordered, 1 AS records
  FROM published_records
  UNION ALL
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, base_offset, timestampType, max_timestamp_ms,
    true, 0
  FROM counted_batches WHERE record_count = 0 AND max_timestamp_ms >= 0
), classified AS (
  -- a wrong unit has a row in timestamp_units; the difference of any other number and a file's time is of 64 bits
  SELECT r.*, s.modified_ms, CASE WHEN u.unit IS NOT NULL THEN u.unit
      WHEN r.timestamp_ms - s.modified_ms > max_future_ms THEN 'future' ELSE 'ordinary' END AS anomaly
  FROM stamped r JOIN listed s ON s.topic = r.topic AND s.partition = r.partition AND s.segment = r.segment
  LEFT JOIN timestamp_units u ON r.timestamp_ms BETWEEN u.lowest AND u.highest
), batched AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, batch_position, timestampType, anomaly, modified_ms,
    sum(records) AS records, min(offset) AS first_offset, min(timestamp_ms) AS lowest_ms, max(timestamp_ms) AS highest_ms
  FROM classified WHERE NOT is_unordered OR anomaly <> 'ordinary'
  GROUP BY topic, partition, partition_dir, segment, file_base_offset, batch_position, timestampType, anomaly, modified_ms
), ordered AS (
  SELECT *, max(highest_ms) OVER (
    PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, batch_position
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest_before_ms
  FROM batched WHERE anomaly = 'ordinary'
), found AS (
  SELECT topic, partition, partition_dir, segment, timestampType, anomaly, records, first_offset, lowest_ms,
    highest_ms, CASE WHEN anomaly <> 'none' THEN highest_ms - modified_ms END AS off_by_ms,
    CASE WHEN anomaly <> 'none' THEN highest_ms - modified_ms > max_future_ms END AS is_blocking
  FROM batched WHERE anomaly <> 'ordinary'
  UNION ALL
  SELECT topic, partition, partition_dir, segment, timestampType, 'out_of_order', records, first_offset,
    lowest_ms, highest_ms, highest_before_ms - lowest_ms, false
  FROM ordered WHERE highest_before_ms - lowest_ms > max_disorder_ms
)
SELECT f.topic, f.partition, f.partition_dir, f.segment, f.timestampType, f.anomaly, sum(f.records) AS records,
  min(f.first_offset) AS first_offset, min(f.lowest_ms) AS lowest_ms, max(f.highest_ms) AS highest_ms,
  max(f.off_by_ms) AS off_by_ms, max(CASE WHEN f.is_blocking THEN s.bytes_from_here END) AS blocked_bytes
FROM found f JOIN listed s ON s.topic = f.topic AND s.partition = f.partition AND s.segment = f.segment
GROUP BY f.topic, f.partition, f.partition_dir, f.segment, f.timestampType, f.anomaly
