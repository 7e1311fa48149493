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
SELECT topic, partition, partition_dir, segment, segment_before, file_base_offset, first_offset, next_offset, damaged_ranges,
  damaged_bytes, misplaced_batches, goes_back, follows_retention, is_confirmed, is_compacted
FROM ordered_batches
WHERE is_hole
