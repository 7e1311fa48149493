-- Offset syncs of MirrorMaker 2: which offset of the target cluster is which one of the source cluster. A row a record
-- Columns:
--   target_cluster string: Alias of the target cluster, from the name of the topic
--   topic string: Topic in the source cluster
--   partition int: Its partition
--   upstream_offset bigint: Offset in the source cluster; null for a tombstone
--   downstream_offset bigint: The offset of the same record in the target cluster; null for a tombstone
--   is_current boolean: The last sync of the topic and partition in this log
--   log_topic, log_partition, record_offset, record_timestamp, segment: as in mm2_records
SELECT record.target_cluster, record.topic, record.partition, record.upstream_offset, record.downstream_offset,
  row_number() OVER (PARTITION BY log_topic, record_key ORDER BY record_offset DESC, log_partition, segment) = 1,
  log_topic, log_partition, record_offset, record_timestamp, segment
FROM mm2_records WHERE record.kind = 'mm2-offset-sync' AND record.error IS NULL
