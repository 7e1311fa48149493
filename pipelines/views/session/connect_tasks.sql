-- The tasks of Kafka Connect's connectors, with their configurations as a worker has them
-- Columns:
--   connector string: Connector
--   task int: Number of the task
--   config string: Its configuration as JSON; null where is_lost. It may hold passwords
--   is_lost boolean: Its record is gone: the worker then takes none of the connector's tasks
--   config_timestamp timestamp: When its configuration was written
--   config_topic string: Topic of the configurations
--   record_offset bigint: Offset of its configuration there
WITH wanted AS (
  -- a damaged count is no reason for a row of each number
  SELECT config_topic, connector, after_offset, commit_offset, explode(sequence(0, least(tasks, 10000) - 1)) AS task
  FROM connect_commits WHERE tasks > 0
), found AS (
  SELECT w.config_topic, w.connector, w.task, r.record.config AS config, r.record_timestamp, r.record_offset,
    row_number() OVER (PARTITION BY w.config_topic, w.connector, w.task ORDER BY r.record_offset DESC, r.segment) AS age
  FROM wanted w LEFT JOIN connect_records r ON r.log_topic = w.config_topic AND r.store = 'config' AND r.error IS NULL
    AND r.record.type = 'task' AND r.record.connector = w.connector AND r.record.task = w.task AND NOT r.is_tombstone
    AND r.record_offset > w.after_offset AND r.record_offset < w.commit_offset
)
SELECT connector, task, config, record_offset IS NULL, record_timestamp, config_topic, record_offset FROM found WHERE age = 1
