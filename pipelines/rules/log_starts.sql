-- Where each log begins for its consumers: its log start offset. DeleteRecords moves it, to within a batch too, and what
-- lies below it may still be on the disk and in `records`: no view of what consumers get has it. Segments that
-- retention deleted after they were decoded stay in these views, as long as the broker notes no log start of its own
-- Columns: those of a log, then
--   log_start_offset bigint: The first offset that consumers may read
--   witness string: What tells it: checkpoint (log-start-offset-checkpoint), epochs (the first entry of leader-epoch-checkpoint), copies (of a healed log), or segments: the base offset of the first segment in the lake
--   certainty string: certain: the checkpoint says it; likely: the epochs or the copies do; unknown: no file tells another offset than that of the first segment
--   is_cut boolean: Records of the lake lie below it
SELECT f.topic, f.partition, f.partition_dir, coalesce(c.log_start_offset, f.first_file) AS log_start_offset,
  CASE WHEN c.log_start_offset IS NULL THEN 'segments' ELSE coalesce(c.log_start_witness, 'checkpoint') END AS witness,
  CASE WHEN c.log_start_offset IS NULL THEN 'unknown' ELSE coalesce(c.log_start_certainty, 'certain') END AS certainty,
  coalesce(c.log_start_offset > f.first_file, false) AS is_cut
FROM (
  SELECT topic, partition, partition_dir, min(file_base_offset) AS first_file FROM segments
  GROUP BY topic, partition, partition_dir
) f LEFT JOIN current_checkpoints c ON c.partition_dir = f.partition_dir
