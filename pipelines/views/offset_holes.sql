-- Ranges of offsets between two sound batches of a log that no sound batch has, and damage, or batches
-- with a wrong base offset, after the last one.
-- `offset_gaps` gives their causes
-- Columns: those of a log, then
--   segment, segment_before, file_base_offset, first_offset, next_offset, damaged_ranges, damaged_bytes: as in ordered_batches
--   misplaced_batches, goes_back, follows_retention, is_confirmed, is_compacted: as in ordered_batches
SELECT topic, partition, partition_dir, segment, segment_before, file_base_offset, first_offset, next_offset, damaged_ranges,
  damaged_bytes, misplaced_batches, goes_back, follows_retention, is_confirmed, is_compacted
FROM ordered_batches
WHERE is_hole
