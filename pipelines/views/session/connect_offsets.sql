-- How far connectors have got: source offsets from Connect's topics, and the commits of sinks' consumer groups. A row a record
-- Columns:
--   connector string: Connector
--   kind string: source or sink; sink for the group `connect-` and the name of a connector of the lake
--   source_partition string: What was read, as JSON: a source's own description, or topic and partition of a sink
--   source_offset string: How far, as JSON; null for a tombstone
--   is_tombstone boolean: The offset was reset or deleted: the connector begins anew there
--   is_current boolean: The last record of this connector and partition in the topic
--   offset_topic string: Topic of the record
--   log_partition, record_offset, record_timestamp, segment: as in connect_records
SELECT record.connector, 'source', record.source_partition, record.source_offset, is_tombstone,
  row_number() OVER (PARTITION BY log_topic, log_partition, record_key ORDER BY record_offset DESC, segment) = 1, log_topic,
  log_partition, record_offset, record_timestamp, segment
FROM connect_records WHERE store = 'offset' AND error IS NULL
UNION ALL
SELECT substring(c.`group`, 9), 'sink', '{"kafka_topic":"' || c.topic || '","kafka_partition":' || c.partition || '}',
  '{"kafka_offset":' || c.committed_offset || '}', c.is_tombstone, c.is_current, '__consumer_offsets', c.log_partition, c.record_offset,
  c.record_timestamp, c.segment
FROM consumer_offsets c
WHERE c.is_read AND c.`group` IN (SELECT 'connect-' || connector FROM connect_commits)
