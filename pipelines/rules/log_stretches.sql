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
SELECT s.topic, s.partition, s.partition_dir, s.segment, s.file_base_offset,
  lead(s.file_base_offset) OVER log AS next_file_base_offset,
  CASE WHEN unix_millis(s.modified) >= $FIRST_KAFKA_MS THEN unix_millis(s.modified) END AS modified_ms,
  coalesce(s.left_out, 0) AS left_out,
  count(f.kind) OVER log AS stretch, count(CASE WHEN f.follows_retention THEN 1 END) OVER log AS retentions
FROM segments s
LEFT JOIN offset_findings f ON f.topic = s.topic AND f.partition = s.partition AND f.segment = s.segment AND f.kind = 'stretch'
WINDOW log AS (PARTITION BY s.topic, s.partition, s.partition_dir ORDER BY s.file_base_offset)
