-- Offsets that are lost: their bytes are damaged, or a segment is missing in the middle of a log. A consumer that stops
-- there can go on at the next sound offset. Segments that are left out count as sound
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   first_lost bigint: First lost offset
--   last_lost bigint: Last lost offset; null for damage after the last sound batch
--   max_records bigint: So many records are lost at most; null where last_lost is
--   cause string: damage or missing_segment
--   is_certain boolean: Records were there; false where the log cleaner may have removed some or all of them before
--   damaged_ranges bigint: Damaged ranges there; 0 for a missing segment
--   damaged_bytes bigint: Their bytes
--   next_offset bigint: The next sound offset; null where none follows
--   reset_command string: The command that moves a stopped consumer group there; null where no sound offset follows
SELECT topic, partition, partition_dir, first_offset AS first_lost, next_offset - 1 AS last_lost,
  next_offset - first_offset AS max_records, CASE WHEN damaged_ranges > 0 THEN 'damage' ELSE 'missing_segment' END AS cause,
  NOT is_compacted AS is_certain, damaged_ranges, damaged_bytes, next_offset,
  concat('kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group GROUP --topic ''', replace(topic, '''', '''\\'''''), ':',
    partition, ''' --reset-offsets --to-offset ', next_offset, ' --execute') AS reset_command
FROM offset_holes
WHERE damaged_ranges > 0 OR (NOT is_compacted AND NOT goes_back AND first_offset < file_base_offset)
