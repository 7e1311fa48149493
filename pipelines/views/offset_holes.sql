-- Ranges of offsets between two sound batches of a log that no sound batch has, and damage, or batches
-- with a wrong base offset, after the last one.
-- `offset_gaps` gives their causes
-- Columns: those of a log, then
--   segment string: Segment of the batch after the hole; null after the last batch
--   segment_before string: Segment of the batch before it; null before the first batch
--   file_base_offset bigint: Base offset in the name of the segment after the hole
--   first_offset bigint: First offset of the hole
--   next_offset bigint: Base offset of the batch after it; null after the last batch
--   damaged_ranges bigint: Damaged ranges in the hole
--   damaged_bytes bigint: Their bytes
--   misplaced_batches bigint: Batches in the hole whose base offset, which no checksum covers, is wrong: their records are there, under other offsets
--   goes_back boolean: The batch after the hole lies in front of the one before it, in the files: one of both has a wrong base offset
--   follows_retention boolean: Retention may have deleted segments there before a run saw them
--   is_confirmed boolean: A batch or a file after it confirms the offset of the batch after the hole; false in front of the last batch of the log
--   is_compacted boolean: The log shows that the log cleaner removed records (compacted_logs)
WITH marked AS (
  SELECT *, max(CASE WHEN shows_compaction THEN 1 ELSE 0 END) OVER (PARTITION BY topic, partition, partition_dir) AS compacted
  FROM ordered_batches
)
SELECT /*+ BROADCAST(after), BROADCAST(before) */ h.topic, h.partition, h.partition_dir, h.segment, h.segment_before, h.file_base_offset, h.first_offset, h.next_offset,
  h.damaged_ranges, h.damaged_bytes, h.misplaced_batches, h.goes_back,
  coalesce(after.retentions > before.retentions, false) AS follows_retention, h.is_confirmed, h.compacted = 1 AS is_compacted
FROM marked h
LEFT JOIN log_stretches after ON after.topic = h.topic AND after.partition = h.partition AND after.segment = h.segment
LEFT JOIN log_stretches before ON before.topic = h.topic AND before.partition = h.partition
  AND before.segment = h.segment_before
WHERE h.next_offset > h.first_offset OR (h.is_end AND h.damaged_ranges + h.misplaced_batches > 0)
