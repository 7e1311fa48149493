-- The records of the healed log (recover): each offset once, from a sound copy, of the true history, from its log start on
-- Columns: those of records, then
--   copy string: Name of the copy that the record's batch was taken from
SELECT r.*, h.copy FROM records r JOIN healed_batches h ON h.topic = r.topic AND h.partition = r.partition
  AND h.segment = r.segment AND h.position = r.batch_position
ANTI JOIN log_starts l ON l.topic = r.topic AND l.partition = r.partition
  AND l.partition_dir = substring(r.segment, 1, length(r.segment) - 25) AND l.is_cut AND r.offset < l.log_start_offset
