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
  SELECT * FROM held WHERE age = 1 AND NOT is_tombstone
), lost AS (
  SELECT config_topic, connector, count(*) AS tasks FROM connect_tasks WHERE is_lost GROUP BY config_topic, connector
)
SELECT c.connector, c.record.config, coalesce(s.record.state, 'STARTED'), o.tasks, CAST(coalesce(l.tasks, 0) AS INT),
  coalesce(o.commit_offset < o.first_config_offset, false), coalesce(o.commit_offset < o.config_offset, true), f.record.count,
  c.record_timestamp, c.log_topic, c.record_offset
FROM last_ones c
JOIN connect_commits o ON o.config_topic = c.log_topic AND o.connector = c.connector
LEFT JOIN last_ones s ON s.log_topic = c.log_topic AND s.connector = c.connector AND s.type = 'target-state'
LEFT JOIN last_ones f ON f.log_topic = c.log_topic AND f.connector = c.connector AND f.type = 'tasks-fencing'
LEFT JOIN lost l ON l.config_topic = c.log_topic AND l.connector = c.connector
WHERE c.type = 'connector'
