-- Heartbeats of MirrorMaker 2: a row a record. In the source cluster the topic is `heartbeats`, in the target cluster its copy has the
-- name of the source in front: a heartbeat there shows that records arrive
-- Columns:
--   source_cluster string: Alias of the source cluster
--   target_cluster string: Alias of the target cluster
--   heartbeat_timestamp timestamp: When MirrorMaker sent it
--   is_current boolean: The last one of these clusters in the topic
--   log_topic, log_partition, record_offset, record_timestamp, segment: as in mm2_records
SELECT record.source_cluster, record.target_cluster, timestamp_millis(record.heartbeat_ms),
  row_number() OVER (PARTITION BY log_topic, record_key ORDER BY record_offset DESC, log_partition, segment) = 1,
  log_topic, log_partition, record_offset, record_timestamp, segment
FROM mm2_records WHERE record.kind = 'mm2-heartbeat' AND record.error IS NULL
