-- The records of MirrorMaker's topics that consumers get: a topic is MirrorMaker's if its name is one that MirrorMaker gives
-- and more of its records are read than not. Other topics of such names are not here
-- Columns:
--   log_topic string: Topic of the record
--   log_partition int: Its partition
--   record_offset bigint: Offset of the record
--   record_timestamp timestamp: Its timestamp
--   segment string: Canonical URI of the segment file
--   record_key binary: The key
--   is_tombstone boolean: The record has no value
--   record struct<kind:string,source_cluster:string,target_cluster:string,heartbeat_ms:bigint,group:string,topic:string,source_topic:string,partition:int,upstream_offset:bigint,downstream_offset:bigint,metadata:string,error:string>: Its fields; error: why it cannot be read
WITH held AS (
  SELECT topic, partition, offset, timestamp, segment, key, value IS NULL AS is_tombstone, kafka_mirror_record(topic, key, value) AS record
  FROM committed_records
  WHERE topic LIKE '%heartbeats' OR topic LIKE '%checkpoints_internal' OR topic LIKE 'mm2-offset-syncs%internal'
), read AS (
  SELECT *, 2 * count(CASE WHEN record.error IS NULL THEN 1 END) OVER (PARTITION BY topic) - count(*) OVER (PARTITION BY topic) AS read_more
  FROM held WHERE record IS NOT NULL
)
SELECT topic, partition, offset, timestamp, segment, key, is_tombstone, record FROM read WHERE read_more > 0
