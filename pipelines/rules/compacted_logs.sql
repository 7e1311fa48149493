-- The logs that show that the log cleaner ran over them (ordered_batches.shows_compaction). A compacted log that shows
-- nothing of it is not here
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
SELECT topic, partition, partition_dir
FROM ordered_batches
WHERE shows_compaction
GROUP BY topic, partition, partition_dir
