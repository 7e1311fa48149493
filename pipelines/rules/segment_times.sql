-- What a broker knows of each segment's age, for retention and for the log cleaner (LogSegment.largestTimestamp)
-- Columns: those of a segment, then
--   file_base_offset, next_file_base_offset: as in log_stretches
--   length bigint: Length of the file
--   is_active boolean: The last segment of its log, to which the broker appends
--   largest_timestamp_ms bigint: Highest max timestamp of its batches, as stored; the file's modification time where it is below 0, or nothing was decoded
--   log_start_offset bigint: Base offset of the first segment in the folder when the newest one was first decoded: the segments before it were deleted since
WITH newest AS (
  SELECT topic, partition, segment, max(max_timestamp_ms) AS newest_ms
  FROM counted_batches GROUP BY topic, partition, segment
)
SELECT s.topic, s.partition, s.partition_dir, s.segment, s.file_base_offset,
  t.next_file_base_offset, s.length, t.next_file_base_offset IS NULL AS is_active,
  CASE WHEN n.newest_ms >= 0 THEN n.newest_ms ELSE unix_millis(s.modified) END AS largest_timestamp_ms,
  max(s.log_start_offset) OVER (PARTITION BY s.topic, s.partition, s.partition_dir) AS log_start_offset
FROM segments s JOIN log_stretches t ON t.topic = s.topic AND t.partition = s.partition AND t.segment = s.segment
LEFT JOIN newest n ON n.topic = s.topic AND n.partition = s.partition AND n.segment = s.segment
