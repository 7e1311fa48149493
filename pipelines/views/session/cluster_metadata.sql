-- The metadata log of a KRaft cluster: topics, partitions, brokers, configurations, as they changed
-- Columns:
--   record_offset bigint: Offset in the metadata log
--   record_timestamp timestamp: Timestamp of the record
--   leader_epoch int: Epoch of the controller that wrote it
--   api_key int: API key as stored
--   name string: Kafka's name of the record; null where the API key is not known
--   version, record, segment, cluster, error, raw_value: as in remote_log_metadata
SELECT offset AS record_offset, timestamp AS record_timestamp, leader_epoch, d.type AS api_key, d.name,
  d.version, d.value AS record, segment, cluster, d.error, if(d.error IS NOT NULL, value, NULL) AS raw_value
FROM (SELECT *, kafka_internal_record(topic, key, value) AS d FROM internal_records WHERE topic = '__cluster_metadata')
