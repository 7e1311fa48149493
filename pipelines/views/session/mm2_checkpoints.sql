-- Checkpoints of MirrorMaker 2: to which offset of the target cluster a group's commit in the source cluster was translated. A row a record
-- Columns:
--   source_cluster string: Alias of the source cluster, from the name of the topic
--   group string: Group id
--   topic string: Topic in the target cluster
--   source_topic string: The topic in the source cluster: its name without the alias in front
--   partition int: Its partition
--   upstream_offset bigint: What the group had committed in the source cluster; null for a tombstone
--   downstream_offset bigint: The offset in the target cluster that MirrorMaker took for it; null for a tombstone
--   metadata string: Text of the commit
--   is_tombstone boolean: The record has no value
--   is_current boolean: The last checkpoint of the group, topic and partition in this log
--   log_topic, log_partition, record_offset, record_timestamp, segment: as in mm2_records
SELECT record.source_cluster, record.`group`, record.topic, record.source_topic, record.partition, record.upstream_offset,
  record.downstream_offset, record.metadata, is_tombstone,
  row_number() OVER (PARTITION BY log_topic, record_key ORDER BY record_offset DESC, log_partition, segment) = 1,
  log_topic, log_partition, record_offset, record_timestamp, segment
FROM mm2_records WHERE record.kind = 'mm2-checkpoint' AND record.error IS NULL
