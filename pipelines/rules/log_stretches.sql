-- The segments of each log in stretches. Between two segments of one stretch no file is missing for a reason that is
-- known. A stretch ends where the segment before was already deleted by retention when the next one was first listed
-- (those between may have been deleted too, before a run saw them), and before and after a segment that is left out
-- Columns: those of a segment, then
--   file_base_offset bigint: Base offset in the segment's file name
--   next_file_base_offset bigint: The same of the next file of the log: all offsets of this one are below it; null for the last
--   modified_ms bigint: Modification time of the file; null before 2011, when there was no Kafka: it proves nothing
--   left_out bigint: Records of it that are left out, as --since, --until or --offsets say; -1: nothing of it was decoded
--   stretch bigint: Number of the stretch in its log; it grows
--   retentions bigint: How many times, up to this segment, retention may have deleted segments that no run saw
WITH ordered AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, coalesce(left_out, 0) AS left_out,
    CASE WHEN unix_millis(modified) >= 1293840000000 THEN unix_millis(modified) END AS modified_ms,
    lead(file_base_offset) OVER log AS next_file_base_offset,
    coalesce(left_out, 0) < 0 OR coalesce(lag(left_out) OVER log, 0) < 0 AS is_apart,
    coalesce(lag(coalesce(end_offset, file_base_offset - 1)) OVER log < file_base_offset - 1
      AND lag(file_base_offset) OVER log < log_start_offset, false) AS follows_retention
  FROM segments
  WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset)
)
SELECT topic, partition, partition_dir, segment, file_base_offset, next_file_base_offset, modified_ms, left_out,
  count(CASE WHEN is_apart OR follows_retention THEN 1 END) OVER log AS stretch,
  count(CASE WHEN follows_retention THEN 1 END) OVER log AS retentions
FROM ordered
WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset)
