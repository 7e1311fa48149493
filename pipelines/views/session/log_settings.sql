-- The settings of each log's topic that retention and compaction go by: the topic's own, else the default of the cluster,
-- as `topic_settings` has them. Where segments are copied to remote storage, local.retention.ms and local.retention.bytes,
-- if set, are what a disk keeps. `__cluster_metadata` has none: it is no log of a topic
-- Columns: those of a log, then
--   topic_retention_ms bigint: retention.ms; null where it is not known
--   topic_retention_bytes bigint: retention.bytes; null where it is not known
--   topic_compaction_lag_ms bigint: min.compaction.lag.ms; null where it is not known
--   cleanup_policy string: cleanup.policy; null where it is not known
--   unread_records bigint: Records and damaged ranges of the metadata log that can't be read (`unread_internal`): a setting may be another
WITH found AS (
  SELECT l.topic, l.partition, l.partition_dir, s.setting, s.value,
    row_number() OVER (PARTITION BY l.topic, l.partition, l.partition_dir, s.setting ORDER BY s.topic IS NULL) AS number
  FROM log_clusters l JOIN topic_settings s ON s.cluster = l.cluster AND coalesce(s.topic, l.topic) = l.topic
  WHERE l.internal_topic = '__cluster_metadata' AND l.topic <> '__cluster_metadata'
), known AS (
  SELECT topic, partition, partition_dir,
    max(CASE WHEN setting = 'retention.ms' THEN TRY_CAST(value AS BIGINT) END) AS retention_ms,
    max(CASE WHEN setting = 'retention.bytes' THEN TRY_CAST(value AS BIGINT) END) AS retention_bytes,
    max(CASE WHEN setting = 'local.retention.ms' THEN TRY_CAST(value AS BIGINT) END) AS local_ms,
    max(CASE WHEN setting = 'local.retention.bytes' THEN TRY_CAST(value AS BIGINT) END) AS local_bytes,
    max(CASE WHEN setting = 'min.compaction.lag.ms' THEN TRY_CAST(value AS BIGINT) END) AS compaction_lag_ms,
    max(CASE WHEN setting = 'cleanup.policy' THEN value END) AS cleanup_policy,
    max(CASE WHEN setting = 'remote.storage.enable' THEN lower(value) END) = 'true'
      AND coalesce(max(CASE WHEN setting = 'remote.log.copy.disable' THEN lower(value) END), 'false') <> 'true' AS is_copied
  FROM found WHERE number = 1 GROUP BY topic, partition, partition_dir
), unread AS (
  SELECT l.topic, l.partition, l.partition_dir, u.unread_records + u.damaged_ranges AS unread_records
  FROM log_clusters l JOIN unread_internal u ON u.internal_topic = l.internal_topic AND u.cluster = l.cluster
  WHERE l.internal_topic = '__cluster_metadata' AND l.topic <> '__cluster_metadata'
)
-- -2: as retention.ms and retention.bytes
SELECT coalesce(k.topic, u.topic) AS topic, coalesce(k.partition, u.partition) AS partition,
  coalesce(k.partition_dir, u.partition_dir) AS partition_dir,
  CASE WHEN is_copied AND local_ms <> -2 THEN local_ms ELSE retention_ms END AS topic_retention_ms,
  CASE WHEN is_copied AND local_bytes <> -2 THEN local_bytes ELSE retention_bytes END AS topic_retention_bytes,
  compaction_lag_ms AS topic_compaction_lag_ms, cleanup_policy, coalesce(u.unread_records, 0) AS unread_records
FROM known k FULL JOIN unread u ON u.topic = k.topic AND u.partition = k.partition AND u.partition_dir = k.partition_dir
