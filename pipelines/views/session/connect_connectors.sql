-- The connectors of Kafka Connect, with their configurations as a worker has them when it has read the topic to its end
-- Columns:
--   connector string: Connector
--   config string: Its configuration as JSON. It may hold passwords
--   target_state string: STARTED, PAUSED or STOPPED
--   tasks int: Tasks of its last commit; null before the first one
--   lost_tasks int: Those whose configuration is not there: the worker then starts none of the tasks
--   commit_is_first boolean: Compaction has removed the configuration that the tasks were made of
--   has_new_config boolean: The last configuration is later than the commit
--   fenced_tasks int: Exactly-once sources: tasks of the last fenced generation; null without one
--   config_timestamp timestamp: When its configuration was written
--   config_topic string: Topic of the configurations
--   record_offset bigint: Offset of its configuration there
WITH held AS (
  SELECT log_topic, record.connector AS connector, record.type AS type, record, is_tombstone, record_timestamp, record_offset,
    row_number() OVER (PARTITION BY log_topic, record.connector, record.type ORDER BY record_offset DESC, segment) AS age
  FROM connect_records WHERE store = 'config' AND error IS NULL AND record.type IN ('connector', 'target-state', 'tasks-fencing')
), last_ones AS (
  -- one record of each type
  SELECT log_topic, connector, max(CASE WHEN type = 'connector' THEN record.config END) AS config,
    max(CASE WHEN type = 'target-state' THEN record.state END) AS target_state,
    max(CASE WHEN type = 'tasks-fencing' THEN record.count END) AS fenced_tasks,
    max(CASE WHEN type = 'connector' THEN record_timestamp END) AS config_timestamp,
    max(CASE WHEN type = 'connector' THEN record_offset END) AS record_offset
  FROM held WHERE age = 1 AND NOT is_tombstone GROUP BY log_topic, connector
), lost AS (
  SELECT config_topic, connector, count(*) AS tasks FROM connect_tasks WHERE is_lost GROUP BY config_topic, connector
)
SELECT c.connector, c.config, coalesce(c.target_state, 'STARTED'), o.tasks, CAST(coalesce(l.tasks, 0) AS INT),
  coalesce(o.commit_offset < o.first_config_offset, false), coalesce(o.commit_offset < o.config_offset, true), c.fenced_tasks,
  c.config_timestamp, c.log_topic, c.record_offset
FROM last_ones c
JOIN connect_commits o ON o.config_topic = c.log_topic AND o.connector = c.connector
LEFT JOIN lost l ON l.config_topic = c.log_topic AND l.connector = c.connector
WHERE c.record_offset IS NOT NULL
