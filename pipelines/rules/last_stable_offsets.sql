-- Where READ_COMMITTED consumers of a log stop: the first offset of its first open transaction. A log without one is not here
-- Columns: those of a log, then
--   last_stable_offset bigint: The offset
SELECT topic, partition, partition_dir, min(first_offset) AS last_stable_offset
FROM current_transactions WHERE holds_last_stable_offset GROUP BY topic, partition, partition_dir
