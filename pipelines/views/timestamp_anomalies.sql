-- Records whose timestamps are missing, out of order, in the future or in a wrong unit, by segment and timestamp type.
-- A segment expires by its highest timestamp: one in the future keeps it, and all segments behind it, on disk
-- Parameters:
--   max_disorder_ms bigint DEFAULT 3600000: how far a timestamp may lie below the highest of the batches before it
--   max_future_ms bigint DEFAULT 3600000: how far a timestamp may lie after the modification time of its segment's file
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   segment string: Canonical URI of the segment file
--   timestampType int: 0 create time, 1 log append time, -1 none
--   anomaly string: none: no timestamp; out_of_order; future; seconds, microseconds, nanoseconds: a timestamp in that unit by mistake
--   records bigint: Records that have it; for out_of_order the records of the batches in which one has it
--   first_offset bigint: The first of them
--   lowest_ms bigint: Lowest of their timestamps, as stored
--   highest_ms bigint: Highest of their timestamps, as stored
--   off_by_ms bigint: How far the worst one is off: below the highest before, or after the file's modification time; null for none
--   blocked_bytes bigint: Bytes of the segment and of those behind it, which time-based retention keeps because of it; null where it blocks nothing
WITH classified AS (
  SELECT r.topic, r.partition, r.partition_dir, r.segment, r.file_base_offset, r.batch_position, r.offset, r.timestampType,
    r.timestamp_ms, unix_millis(s.modified) AS modified_ms,
    -- 2001 to 5138 as a number of seconds is 1970 to 1973 in milliseconds; 1973 on in microseconds is 5138 on
    CASE WHEN r.timestamp_ms < 0 THEN 'none'
      WHEN r.timestamp_ms BETWEEN 1000000000 AND 99999999999 THEN 'seconds'
      WHEN r.timestamp_ms >= 100000000000000000 THEN 'nanoseconds'
      WHEN r.timestamp_ms >= 100000000000000 THEN 'microseconds'
      WHEN r.timestamp_ms > unix_millis(s.modified) + max_future_ms THEN 'future' ELSE 'ordinary' END AS anomaly
  FROM published_records r JOIN segments s ON s.topic = r.topic AND s.partition = r.partition AND s.segment = r.segment
  WHERE NOT r.is_control
), batched AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, batch_position, timestampType, anomaly, modified_ms,
    count(*) AS records, min(offset) AS first_offset, min(timestamp_ms) AS lowest_ms, max(timestamp_ms) AS highest_ms
  FROM classified
  GROUP BY topic, partition, partition_dir, segment, file_base_offset, batch_position, timestampType, anomaly, modified_ms
), ordered AS (
  SELECT *, max(highest_ms) OVER (
    PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, batch_position
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest_before_ms
  FROM batched WHERE anomaly = 'ordinary'
), found AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, timestampType, anomaly, records, first_offset, lowest_ms,
    highest_ms, CASE WHEN anomaly <> 'none' THEN highest_ms - modified_ms END AS off_by_ms,
    anomaly <> 'none' AND highest_ms > modified_ms + max_future_ms AS is_blocking
  FROM batched WHERE anomaly <> 'ordinary'
  UNION ALL
  SELECT topic, partition, partition_dir, segment, file_base_offset, timestampType, 'out_of_order', records, first_offset,
    lowest_ms, highest_ms, highest_before_ms - lowest_ms, false
  FROM ordered WHERE highest_before_ms - lowest_ms > max_disorder_ms
), sizes AS (
  SELECT segment, sum(length) OVER (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset DESC) AS bytes_from_here
  FROM segments
)
SELECT f.topic, f.partition, f.partition_dir, f.segment, f.timestampType, f.anomaly, sum(f.records) AS records,
  min(f.first_offset) AS first_offset, min(f.lowest_ms) AS lowest_ms, max(f.highest_ms) AS highest_ms,
  max(f.off_by_ms) AS off_by_ms, CASE WHEN bool_or(f.is_blocking) THEN max(z.bytes_from_here) END AS blocked_bytes
FROM found f JOIN sizes z ON z.segment = f.segment
GROUP BY f.topic, f.partition, f.partition_dir, f.segment, f.timestampType, f.anomaly
