-- Which segments a broker would delete, with given limits or with each topic's own (`log_settings`), why, when, and what
-- holds the others. A broker deletes from the start of a log: first what lies before the log's start, then by size, then by time; a segment waits for those before
-- it (UnifiedLog.deleteOldSegments). It deletes nothing that is not on all replicas in sync yet
-- Parameters:
--   retention_ms bigint DEFAULT NULL: retention.ms; -1 for no limit; if it is not given, that of each topic, else Kafka's default, $RETENTION_MS; of `__cluster_metadata`, whose segments go after snapshots alone, `__share_group_state` and `__remote_log_metadata` -1
--   retention_bytes bigint DEFAULT NULL: retention.bytes; -1 for no limit; if it is not given, that of each topic, else Kafka's default, -1
--   at_ms bigint DEFAULT NULL: the time in ms since 1970; now if it is not given
-- Columns: those of a segment, then
--   file_base_offset, length: as in segment_times
--   is_active boolean: The last segment of its log
--   largest_timestamp_ms bigint: What the segment expires by: its highest timestamp, or the file's modification time
--   expires_ms bigint: The last millisecond in which time keeps it; null with no limit of time
--   limit_ms bigint: retention.ms that was taken
--   limit_bytes bigint: retention.bytes that was taken
--   cleanup_policy string: cleanup.policy of the topic; null where it is not known. Without delete in it, only what lies before the log's start goes
--   can_go boolean: The broker deletes it at the given time
--   freed_by string: Which limit deletes it: log start, size, time; null if it stays
--   held_by string: null if it can go; its own timestamp; an earlier segment; size; empty last segment; no limit; cleanup.policy
--   unread_records bigint: As in `log_settings`: a limit of the topic's own may be another
WITH known AS (
  -- brokers create internal topics with these settings
  SELECT t.*, coalesce(s.topic_retention_ms, CASE WHEN t.topic IN $KEEPING_TOPICS
      THEN -1 ELSE $RETENTION_MS END) AS topic_ms, coalesce(s.topic_retention_bytes, -1) AS topic_bytes,
    coalesce(s.cleanup_policy, CASE WHEN t.topic IN $COMPACTED_TOPICS THEN 'compact' END)
      AS cleanup_policy, coalesce(s.unread_records, 0) AS unread_records
  FROM segment_times t LEFT JOIN log_settings s ON s.topic = t.topic AND s.partition = t.partition
    AND s.partition_dir = t.partition_dir
), limited AS (
  SELECT *, coalesce(retention_ms, topic_ms) AS limit_ms, coalesce(retention_bytes, topic_bytes) AS limit_bytes,
    coalesce(retention_ms, retention_bytes) IS NULL AND coalesce(cleanup_policy NOT LIKE '%delete%', false) AS keeps_all
  FROM known
), started AS (
  -- numbers of 38 digits: a broker subtracts in 64 bits, which wrap, and an engine would fail there
  SELECT *, is_active AND length = 0 AS is_empty_last,
    coalesce(next_file_base_offset <= log_start_offset, false) AS is_before_start,
    CASE WHEN next_file_base_offset <= log_start_offset THEN 0 ELSE CAST(length AS DECIMAL(38, 0)) END AS counted_bytes,
    CAST(coalesce(at_ms, unix_millis(current_timestamp)) AS DECIMAL(38, 0)) - largest_timestamp_ms AS unwrapped_age
  FROM limited
), summed AS (
  SELECT *, sum(counted_bytes) OVER (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS bytes_until,
    sum(counted_bytes) OVER (PARTITION BY topic, partition, partition_dir) AS log_bytes,
    CASE WHEN unwrapped_age > 9223372036854775807 THEN unwrapped_age - 18446744073709551616
      WHEN unwrapped_age < -9223372036854775807 - 1 THEN unwrapped_age + 18446744073709551616 ELSE unwrapped_age END AS age_ms
  FROM started
), sized AS (
  SELECT *, NOT is_before_start AND NOT is_empty_last AND NOT keeps_all AND limit_bytes >= 0 AND log_bytes >= limit_bytes
      AND bytes_until <= log_bytes - limit_bytes AS is_over_size,
    NOT keeps_all AND limit_ms >= 0 AND age_ms > limit_ms AS is_expired
  FROM summed
), freed AS (
  SELECT *, min(CASE WHEN is_before_start OR is_over_size OR (is_expired AND NOT is_empty_last) THEN 1 ELSE 0 END) OVER (
      PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) = 1 AS can_go,
    max(CASE WHEN NOT is_before_start AND NOT is_over_size THEN largest_timestamp_ms END) OVER (
      PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS largest_until_ms
  FROM sized
)
SELECT topic, partition, partition_dir, segment, file_base_offset, length, is_active, largest_timestamp_ms,
  CASE WHEN NOT keeps_all AND limit_ms >= 0 AND NOT is_before_start AND NOT is_over_size
    AND largest_until_ms <= 9223372036854775807 - limit_ms THEN largest_until_ms + limit_ms END AS expires_ms,
  limit_ms, limit_bytes, cleanup_policy, can_go, CASE WHEN is_before_start THEN 'log start' WHEN is_over_size THEN 'size' WHEN can_go THEN 'time' END AS freed_by,
  CASE WHEN can_go THEN NULL
    WHEN keeps_all THEN 'cleanup.policy'
    WHEN limit_ms < 0 AND limit_bytes < 0 THEN 'no limit'
    WHEN is_empty_last THEN 'empty last segment'
    WHEN limit_ms < 0 THEN 'size'
    WHEN is_expired THEN 'an earlier segment' ELSE 'its own timestamp' END AS held_by, unread_records
FROM freed
