-- Ranges of offsets between two sound batches of a log that no sound batch has, and damage, or batches
-- with a wrong base offset, after the last one. Batches with a wrong base offset (`sound_batches`) are left out; a segment
-- that is left out counts as one batch, and so does a file that could not be read.
-- `offset_gaps` gives their causes
-- Columns: those of a log, then
--   segment string: Segment of the batch after it; null for the end of the log, and for a file that could not be read
--   segment_before string: Segment of the batch before; null for the first
--   file_base_offset bigint: Base offset in the name of the file after it; 9223372036854775807 for the end
--   first_offset bigint: The offset after the highest one before; the base offset of the first file for the first; null after 9223372036854775807
--   next_offset bigint: Base offset of the batch after it; null for the end
--   damaged_ranges bigint: Damaged ranges between the batch before and this one
--   damaged_bytes bigint: Their bytes
--   misplaced_batches bigint: Batches between them whose base offset, which no checksum covers, is wrong: their records are there, under other offsets
--   goes_back boolean: The batch after it lies in front of the one before, in the files: one of both has a wrong base offset
--   follows_retention boolean: Retention may have deleted segments between the batch before and this one before a run saw them
--   is_confirmed boolean: A batch or a file after it confirms the base offset of the batch after it; false for the last batch of the last file
--   is_compacted boolean: The log shows what only the log cleaner leaves, or the topic is one that brokers compact (`compacted_logs`)
SELECT topic, partition, partition_dir, segment_after AS segment, segment_before, file_base_offset, first_offset, next_offset,
  damaged_ranges, damaged_bytes, misplaced_batches, goes_back, follows_retention, is_confirmed, is_compacted
FROM offset_findings
WHERE kind = 'hole'
