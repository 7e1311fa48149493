-- The records of the healed log (recover): each offset once, from a sound copy, of the true history
-- Columns: those of records, then
--   copy string: Name of the copy that the record's batch was taken from
SELECT r.*, h.copy FROM records r JOIN healed_batches h ON h.topic = r.topic AND h.partition = r.partition
  AND h.segment = r.segment AND h.position = r.batch_position
