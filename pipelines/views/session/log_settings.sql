-- The settings of each log's topic that retention and compaction go by: the topic's own, else the default of the cluster,
-- as `topic_settings` has them
-- Columns: those of a log, then
--   topic_retention_ms bigint: retention.ms; null where it is not known
--   topic_retention_bytes bigint: retention.bytes; null where it is not known
--   topic_compaction_lag_ms bigint: min.compaction.lag.ms; null where it is not known
--   cleanup_policy string: cleanup.policy; null where it is not known
WITH found AS (
  SELECT l.topic, l.partition, l.partition_dir, s.setting, s.value,
    row_number() OVER (PARTITION BY l.topic, l.partition, l.partition_dir, s.setting ORDER BY s.topic IS NULL) AS number
  FROM log_clusters l JOIN topic_settings s ON s.cluster = l.cluster AND coalesce(s.topic, l.topic) = l.topic
  WHERE l.internal_topic = '__cluster_metadata'
)
SELECT topic, partition, partition_dir,
  max(CASE WHEN setting = 'retention.ms' THEN TRY_CAST(value AS BIGINT) END) AS topic_retention_ms,
  max(CASE WHEN setting = 'retention.bytes' THEN TRY_CAST(value AS BIGINT) END) AS topic_retention_bytes,
  max(CASE WHEN setting = 'min.compaction.lag.ms' THEN TRY_CAST(value AS BIGINT) END) AS topic_compaction_lag_ms,
  max(CASE WHEN setting = 'cleanup.policy' THEN value END) AS cleanup_policy
FROM found WHERE number = 1 GROUP BY topic, partition, partition_dir
