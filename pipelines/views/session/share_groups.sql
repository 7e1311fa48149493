-- Where each share group stands in each partition: the last snapshot of its coordinator with the updates after it
-- (`share_group_states`), and how far behind the end of the log that is
-- Columns:
--   group string: Group id
--   topic string: Topic; null where the lake has no log of it
--   topic_id string: Topic id
--   partition int: Partition of that topic
--   start_offset bigint: First offset that is not yet delivered for good; null until the first delivery
--   end_offset bigint: Where the log ends (`log_ends`), of several copies the highest; null where the lake has no log of it
--   lag bigint: end_offset less start_offset less delivery_complete_count, as Kafka's tools count; null where one is not known
--   available bigint: Offsets from start_offset on that were delivered and given back: they will be delivered again
--   acknowledged bigint: Offsets from start_offset on that were acknowledged
--   archiving bigint: Offsets that are on their way to archived
--   archived bigint: Offsets that were rejected, or delivered too often: nobody gets them again
--   delivery_complete_count bigint: Offsets from start_offset on that are acknowledged or archived, as the coordinator counted; null where it did not: before 4.2
--   state_epoch int: State epoch
--   batches string: The merged state batches as JSON: offsets, delivery state and count
--   updated timestamp: Time of the last record
--   cluster string: The cluster of the group and of the log (`log_clusters`)
--   unread_records bigint: Records since the snapshot that can't be read; of unknown groups in a row without a group
WITH current_states AS (
  SELECT * FROM share_group_states WHERE is_current AND `group` IS NOT NULL
), parts AS (
  SELECT cluster, `group`, topic_id, partition, max(record_timestamp) AS updated,
    count(*) FILTER (WHERE error IS NOT NULL AND state IS NULL) AS unread_records,
    '[' || array_join(array_agg('{"offset":' || record_offset || ',"value":' || state || '}'), ',') || ']' AS records
  FROM current_states WHERE NOT is_tombstone
  GROUP BY cluster, `group`, topic_id, partition
), merged AS (
  SELECT *, kafka_share_partition(records) AS s FROM parts
), logs_of AS (
  SELECT l.cluster, l.topic, l.partition, f.topic_id, max(e.end_offset) AS end_offset
  FROM log_clusters l
  JOIN (SELECT DISTINCT topic, partition, partition_dir, topic_id FROM segments) f
    ON f.topic = l.topic AND f.partition = l.partition AND f.partition_dir = l.partition_dir
  JOIN log_ends e ON e.topic = l.topic AND e.partition = l.partition AND e.partition_dir = l.partition_dir
  WHERE l.internal_topic = '__share_group_state'
  GROUP BY l.cluster, l.topic, l.partition, f.topic_id
)
SELECT m.`group`, o.topic, m.topic_id, m.partition, CASE WHEN m.s.start_offset >= 0 THEN m.s.start_offset END AS start_offset, o.end_offset,
  CASE WHEN m.s.delivery_complete_count >= 0 AND m.s.start_offset >= 0 AND o.end_offset IS NOT NULL
    THEN greatest(o.end_offset - m.s.start_offset - m.s.delivery_complete_count, 0) END AS lag,
  m.s.available, m.s.acknowledged, m.s.archiving, m.s.archived,
  CASE WHEN m.s.delivery_complete_count >= 0 THEN CAST(m.s.delivery_complete_count AS BIGINT) END AS delivery_complete_count,
  m.s.state_epoch, m.s.batches, m.updated, m.cluster, m.unread_records
FROM merged m LEFT JOIN logs_of o ON o.cluster = m.cluster AND o.topic_id = m.topic_id AND o.partition = m.partition
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, u.cluster,
  u.unread_records + u.damaged_ranges
FROM unread_internal u WHERE u.internal_topic = '__share_group_state'
