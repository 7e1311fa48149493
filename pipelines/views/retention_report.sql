-- Which segments a broker would delete with given settings, when, and what holds the others. A broker deletes from the
-- start of a log: a segment waits for those before it (UnifiedLog.deleteOldSegments)
-- Parameters:
--   retention_ms bigint DEFAULT 604800000: retention.ms of the topic; -1 for no limit
--   retention_bytes bigint DEFAULT -1: retention.bytes of the topic; -1 for no limit
--   at_ms bigint DEFAULT NULL: the time in ms since 1970; now if it is not given
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   segment string: Canonical URI of the segment file
--   file_base_offset bigint: Base offset in the file's name
--   length bigint: Length of the file
--   largest_timestamp_ms bigint: What the segment expires by: its highest timestamp, or the file's modification time where no record has one, or none was decoded
--   expires_ms bigint: When the broker can delete it, together with those before it; null with no limit of time
--   can_go boolean: The broker deletes it at the given time
--   held_by string: null if it can go; its own timestamp; an earlier segment: the segment has expired, one before it has not; no limit
WITH newest AS (
  SELECT segment, max(max_timestamp_ms) AS newest_ms
  FROM published_batches WHERE status IN ('ok', 'suspect') GROUP BY segment
), aged AS (
  SELECT s.topic, s.partition, s.partition_dir, s.segment, s.file_base_offset, s.length,
    CASE WHEN n.newest_ms >= 0 THEN n.newest_ms ELSE unix_millis(s.modified) END AS largest_timestamp_ms,
    sum(s.length) OVER (PARTITION BY s.topic, s.partition, s.partition_dir ORDER BY s.file_base_offset) AS bytes_until,
    sum(s.length) OVER (PARTITION BY s.topic, s.partition, s.partition_dir) AS log_bytes
  FROM segments s LEFT JOIN newest n ON n.segment = s.segment
), judged AS (
  SELECT *, max(largest_timestamp_ms) OVER (
      PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset) AS largest_until_ms,
    retention_bytes >= 0 AND bytes_until <= log_bytes - retention_bytes AS is_over_size,
    coalesce(at_ms, unix_millis(current_timestamp)) - retention_ms AS oldest_kept_ms
  FROM aged
)
SELECT topic, partition, partition_dir, segment, file_base_offset, length, largest_timestamp_ms,
  CASE WHEN retention_ms >= 0 THEN largest_until_ms + retention_ms END AS expires_ms,
  is_over_size OR (retention_ms >= 0 AND largest_until_ms < oldest_kept_ms) AS can_go,
  CASE WHEN is_over_size OR (retention_ms >= 0 AND largest_until_ms < oldest_kept_ms) THEN NULL
    WHEN retention_ms < 0 THEN 'no limit'
    WHEN largest_timestamp_ms < oldest_kept_ms THEN 'an earlier segment' ELSE 'its own timestamp' END AS held_by
FROM judged
