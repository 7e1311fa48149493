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
  SELECT DISTINCT log_topic, record.connector AS connector, record.type AS type, record_offset, is_tombstone, record.count AS tasks
  FROM connect_records WHERE store = 'config' AND error IS NULL AND record.type IN ('connector', 'commit')
), dated AS (
  SELECT *, coalesce(max(CASE WHEN type = 'connector' AND is_tombstone THEN record_offset END)
    OVER (PARTITION BY log_topic, connector), -1) AS deleted_offset
  FROM held
), living AS (
  SELECT log_topic, connector, deleted_offset, tasks,
    max(CASE WHEN type = 'connector' THEN record_offset END) OVER (PARTITION BY log_topic, connector) AS config_offset,
    min(CASE WHEN type = 'connector' AND record_offset > deleted_offset THEN record_offset END)
      OVER (PARTITION BY log_topic, connector) AS first_config_offset,
    CASE WHEN type = 'commit' AND record_offset > deleted_offset AND NOT is_tombstone THEN record_offset END AS commit_offset
  FROM dated
), ordered AS (
  SELECT *, row_number() OVER (PARTITION BY log_topic, connector ORDER BY commit_offset DESC NULLS LAST) AS age,
    lead(commit_offset) OVER (PARTITION BY log_topic, connector ORDER BY commit_offset DESC NULLS LAST) AS before
  FROM living WHERE first_config_offset IS NOT NULL
)
SELECT log_topic, connector, config_offset, first_config_offset, coalesce(before, deleted_offset), commit_offset,
  CASE WHEN commit_offset IS NOT NULL THEN tasks END
FROM ordered WHERE age = 1
