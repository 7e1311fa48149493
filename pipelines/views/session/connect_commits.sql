-- How many tasks each connector has: its last commit record, and between which offsets the configurations of these tasks lie. A
-- worker takes a commit only if the configurations of all tasks stand between it and the commit before
-- Columns:
--   config_topic string: Topic of the configurations
--   connector string: Connector
--   config_offset bigint: Offset of its last configuration
--   first_config_offset bigint: Offset of the first configuration since it was last deleted
--   after_offset bigint: Offset of the commit, or the deletion, before; -1 without one
--   commit_offset bigint: Offset of the last commit; null without one
--   tasks int: Tasks of the commit; null without one
WITH held AS (
  SELECT log_topic, record.connector AS connector, record.type AS type, record_offset, is_tombstone, record.count AS tasks
  FROM connect_records WHERE store = 'config' AND error IS NULL AND record.type IN ('connector', 'commit')
), configs AS (
  SELECT log_topic, connector, max(record_offset) AS config_offset,
    coalesce(max(CASE WHEN is_tombstone THEN record_offset END), -1) AS deleted_offset
  FROM held WHERE type = 'connector' GROUP BY log_topic, connector
), living AS (
  SELECT c.log_topic, c.connector, c.config_offset, c.deleted_offset, min(h.record_offset) AS first_config_offset
  FROM configs c JOIN held h ON h.log_topic = c.log_topic AND h.connector = c.connector AND h.type = 'connector'
    AND h.record_offset > c.deleted_offset
  GROUP BY c.log_topic, c.connector, c.config_offset, c.deleted_offset
), commits AS (
  SELECT DISTINCT l.log_topic, l.connector, h.record_offset, h.tasks
  FROM living l JOIN held h ON h.log_topic = l.log_topic AND h.connector = l.connector AND h.type = 'commit'
    AND h.record_offset > l.deleted_offset AND NOT h.is_tombstone
), ordered AS (
  SELECT *, row_number() OVER (PARTITION BY log_topic, connector ORDER BY record_offset DESC) AS age,
    lag(record_offset) OVER (PARTITION BY log_topic, connector ORDER BY record_offset) AS before
  FROM commits
)
SELECT l.log_topic, l.connector, l.config_offset, l.first_config_offset, coalesce(o.before, l.deleted_offset), o.record_offset, o.tasks
FROM living l LEFT JOIN ordered o ON o.log_topic = l.log_topic AND o.connector = l.connector AND o.age = 1
