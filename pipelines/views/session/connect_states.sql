-- States that workers of Kafka Connect wrote of connectors and tasks, and the topics that connectors have used. A row a record
-- Columns:
--   connector string: Connector
--   task int: Number of the task; null for the connector itself. Of a topic the task that used it first
--   kind string: connector, task or topic
--   topic string: A topic that the connector has used; null but in rows of topics
--   state string: RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, RESTARTING or DESTROYED; null for a topic and a tombstone
--   worker string: Id of the worker: its address
--   generation int: Generation of the workers' group
--   version string: Version of the connector; null where the release does not write it
--   trace string: Why it failed; null where it did not
--   is_tombstone boolean: The state was deleted
--   is_current boolean: The last record of this key in the topic
--   status_topic string: Topic of the record
--   log_partition, record_offset, record_timestamp, segment: as in connect_records
SELECT record.connector, record.task, record.type, CASE WHEN record.type = 'topic' THEN record.other END, record.state, record.worker,
  record.generation, record.version, record.trace, is_tombstone,
  row_number() OVER (PARTITION BY log_topic, log_partition, record_key ORDER BY record_offset DESC, segment) = 1, log_topic,
  log_partition, record_offset, record_timestamp, segment
FROM connect_records WHERE store = 'status' AND error IS NULL
