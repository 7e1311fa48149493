-- The logs that show that the log cleaner ran over them (ordered_batches.is_compacted). A compacted log that shows
-- nothing of it is not here
-- Columns: those of a log
SELECT topic, partition, partition_dir
FROM ordered_batches
WHERE is_compacted AND is_end
