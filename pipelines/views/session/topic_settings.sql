-- The settings of topics that the metadata log of a KRaft cluster has: the last value of each, of topics that are not
-- deleted, and the defaults of topics that were set for all brokers at run time. What a transaction of that log (KIP-868)
-- has counts once it has ended, and not if it was aborted. Brokers' own files (server.properties) are in no log, and what a
-- snapshot replaced before the log was decoded is not here
-- Columns:
--   cluster string: Log directory of the copy of `__cluster_metadata`, of several the first (`log_clusters`)
--   topic string: Topic; null for a default of all topics
--   setting string: Name of the setting, as topics have it
--   value string: Its value
--   record_offset bigint: Offset of the record in the metadata log
--   unread_records bigint: Records and damaged ranges of the metadata log that can't be read (`unread_internal`): the setting may have another value
WITH numbered_transactions AS (
  -- of each record how many transactions of the metadata log (KIP-868) had begun
  SELECT *, count(CASE WHEN name = 'BeginTransactionRecord' THEN 1 END) OVER (PARTITION BY cluster ORDER BY record_offset) AS number
  FROM cluster_metadata
), counted AS (
  -- up to where the records of that transaction do not count: -1 once it has ended, and for those before all transactions
  SELECT *, coalesce(max(CASE name WHEN 'EndTransactionRecord' THEN -1 WHEN 'AbortTransactionRecord' THEN record_offset END)
    OVER (PARTITION BY cluster, number), CASE WHEN number = 0 THEN -1 ELSE 9223372036854775807 END) AS undone_until
  FROM numbered_transactions
), changes AS (
  SELECT c.cluster, c.record_offset, c.segment, c.name, get_json_object(c.record, '$.resourceType') AS resource_type,
    get_json_object(c.record, '$.resourceName') AS resource_name, get_json_object(c.record, '$.name') AS named,
    get_json_object(c.record, '$.value') AS value, get_json_object(c.record, '$.topicId') AS topic_id
  FROM counted c
  WHERE c.record_offset > c.undone_until AND c.name IN ('ConfigRecord', 'TopicRecord', 'RemoveTopicRecord')
), deleted AS (
  SELECT cluster, named AS topic, max(deleted_offset) AS deleted_offset
  FROM (SELECT cluster, name, named,
      max(CASE WHEN name = 'RemoveTopicRecord' THEN record_offset END) OVER (PARTITION BY cluster, topic_id) AS deleted_offset
    FROM changes WHERE name <> 'ConfigRecord')
  WHERE name = 'TopicRecord' GROUP BY cluster, named
), synonyms AS (
  -- brokers' names of the settings of topics (ServerTopicConfigSynonyms) that can be set at run time
  SELECT named, setting FROM (VALUES ('log.roll.ms', 'segment.ms'), ('log.roll.jitter.ms', 'segment.jitter.ms'),
    ('log.index.size.max.bytes', 'segment.index.bytes'), ('log.flush.interval.messages', 'flush.messages'),
    ('log.flush.interval.ms', 'flush.ms'), ('log.segment.delete.delay.ms', 'file.delete.delay.ms'),
    ('log.cleaner.min.cleanable.ratio', 'min.cleanable.dirty.ratio'), ('message.max.bytes', 'max.message.bytes')
  ) AS other(named, setting)
  UNION ALL
  SELECT 'log.cleaner.' || setting, setting
  FROM (VALUES ('min.compaction.lag.ms'), ('max.compaction.lag.ms'), ('delete.retention.ms')) AS cleaner(setting)
  UNION ALL
  SELECT 'log.' || setting, setting FROM (VALUES ('segment.bytes'), ('retention.ms'), ('retention.bytes'),
    ('local.retention.ms'), ('local.retention.bytes'), ('index.interval.bytes'), ('cleanup.policy'), ('preallocate'),
    ('message.timestamp.type'), ('message.timestamp.before.max.ms'), ('message.timestamp.after.max.ms')) AS prefixed(setting)
  UNION ALL
  SELECT setting, setting FROM (VALUES ('unclean.leader.election.enable'), ('min.insync.replicas'), ('compression.type'),
    ('compression.gzip.level'), ('compression.lz4.level'), ('compression.zstd.level')) AS same(setting)
), numbered AS (
  SELECT *, row_number() OVER (PARTITION BY cluster, resource_type, resource_name, named
    ORDER BY record_offset DESC, segment) AS number
  FROM changes WHERE name = 'ConfigRecord' AND (resource_type = '2' OR (resource_type = '4' AND resource_name = ''))
)
SELECT n.cluster, CASE WHEN n.resource_type = '2' THEN n.resource_name END AS topic,
  coalesce(y.setting, n.named) AS setting, n.value, n.record_offset,
  coalesce(u.unread_records + u.damaged_ranges, 0) AS unread_records
FROM numbered n LEFT JOIN deleted d ON d.cluster = n.cluster AND d.topic = n.resource_name AND n.resource_type = '2'
LEFT JOIN synonyms y ON y.named = n.named AND n.resource_type = '4'
LEFT JOIN unread_internal u ON u.internal_topic = '__cluster_metadata' AND u.cluster = n.cluster
WHERE n.number = 1 AND n.value IS NOT NULL AND n.record_offset > coalesce(d.deleted_offset, -1)
  AND (n.resource_type = '2' OR y.setting IS NOT NULL)
