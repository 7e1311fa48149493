-- How far each group is behind the end of the logs, by what it committed last, and what its lag is made of: of a consumer
-- group of every protocol, Streams' and simple ones too (share groups: `share_groups`). `lag` is what Kafka's tools print; a
-- READ_COMMITTED consumer gets `readable` records of it, and reads on after that where `held` is 0. Of several copies of a log
-- the one with the highest end counts. A group that committed nothing is not here. Where records of `__consumer_offsets`
-- can't be read, one more row has no group and says so
-- Columns:
--   group string: Group id; null where it is not known of which groups unread records are
--   topic string: Topic of the committed offset
--   partition int: Its partition
--   committed_offset bigint: The next offset that the group will read; null where no commit of it can be read
--   commit_timestamp timestamp: When it was committed
--   log_start_offset bigint: Where the log begins for consumers (`log_starts`); null where the lake has no log of it
--   last_stable_offset bigint: Where READ_COMMITTED consumers stop: the first offset of the first open transaction, else end_offset
--   end_offset bigint: Where the log ends (`log_ends`)
--   lag bigint: Offsets from committed_offset, or log_start_offset if that is higher, to end_offset; at least 0
--   readable bigint: Of these, records that a READ_COMMITTED consumer gets
--   held bigint: Offsets from last_stable_offset on, which an open transaction holds back
--   markers bigint: Control records before last_stable_offset: no consumer gets them
--   aborted bigint: Records of transactions that did not commit, before it
--   no_records bigint: Offsets before it without a record: compaction removed it, or it is lost (`offset_gaps`)
--   deleted bigint: Offsets from committed_offset on that lie below log_start_offset: the group goes on where auto.offset.reset says
--   past_end bigint: Offsets by which committed_offset lies past end_offset: the log was cut, or made anew
--   held_by_producer bigint: Producer id of the transaction that holds `held` back; null where nothing is
--   held_by string: Its transactional id, where `__transaction_state` tells it
--   cluster string: The cluster of the group and of the log (`log_clusters`)
--   unread_commits bigint: Later commits of the group to this partition that can't be read: it may be further
--   note string: What is missing for a certain answer; null where nothing is
WITH copies AS (
  SELECT l.cluster, l.topic, l.partition, l.partition_dir, b.log_start_offset, e.end_offset, e.is_whole,
    least(coalesce(s.last_stable_offset, e.end_offset), e.end_offset) AS last_stable_offset,
    row_number() OVER (PARTITION BY l.cluster, l.topic, l.partition ORDER BY e.end_offset DESC NULLS LAST, l.partition_dir) AS rank
  FROM log_clusters l
  JOIN log_starts b ON b.topic = l.topic AND b.partition = l.partition AND b.partition_dir = l.partition_dir
  JOIN log_ends e ON e.topic = l.topic AND e.partition = l.partition AND e.partition_dir = l.partition_dir
  LEFT JOIN last_stable_offsets s ON s.topic = l.topic AND s.partition = l.partition AND s.partition_dir = l.partition_dir
  WHERE l.internal_topic = '__consumer_offsets'
), held AS (
  SELECT c.cluster, c.`group`, c.topic, c.partition, c.committed_offset, c.commit_timestamp, c.unread_commits, l.partition_dir,
    l.log_start_offset, l.last_stable_offset, l.end_offset, l.is_whole,
    CASE WHEN c.committed_offset IS NOT NULL AND l.log_start_offset IS NOT NULL THEN greatest(c.committed_offset, l.log_start_offset)
      END AS goes_on
  FROM group_positions c LEFT JOIN copies l ON l.cluster = c.cluster AND l.topic = c.topic AND l.partition = c.partition AND l.rank = 1
), behind AS (
  SELECT cluster, `group`, topic, partition, partition_dir, goes_on, last_stable_offset FROM held WHERE goes_on < last_stable_offset
), lying AS (
  SELECT h.cluster, h.`group`, h.topic, h.partition, count(*) AS records, count(*) FILTER (WHERE r.is_control) AS markers
  FROM behind h JOIN published_records r ON r.topic = h.topic AND r.partition = h.partition AND r.partition_dir = h.partition_dir
    AND r.offset >= h.goes_on AND r.offset < h.last_stable_offset
  GROUP BY h.cluster, h.`group`, h.topic, h.partition
), given AS (
  SELECT h.cluster, h.`group`, h.topic, h.partition, count(*) AS records
  FROM behind h JOIN committed_records r ON r.topic = h.topic AND r.partition = h.partition
    AND substring(r.segment, 1, length(r.segment) - 25) = h.partition_dir
    AND r.offset >= h.goes_on AND r.offset < h.last_stable_offset
  GROUP BY h.cluster, h.`group`, h.topic, h.partition
), holders AS (
  SELECT t.topic, t.partition, t.partition_dir, min_by(t.producer_id, t.first_offset) AS producer_id
  FROM current_transactions t WHERE t.holds_last_stable_offset GROUP BY t.topic, t.partition, t.partition_dir
), named AS (
  SELECT t.topic, t.partition, t.partition_dir, t.producer_id, max(p.transactional_id) AS transactional_id
  FROM holders t
  LEFT JOIN log_clusters l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
    AND l.internal_topic = '__transaction_state'
  LEFT JOIN transaction_states p ON p.cluster = l.cluster AND p.producer_id = t.producer_id AND p.is_current
  GROUP BY t.topic, t.partition, t.partition_dir, t.producer_id
)
SELECT h.`group`, h.topic, h.partition, h.committed_offset, h.commit_timestamp, h.log_start_offset, h.last_stable_offset, h.end_offset,
  -- greatest() leaves nulls out
  CASE WHEN h.goes_on IS NOT NULL THEN greatest(h.end_offset - h.goes_on, 0) END AS lag,
  CASE WHEN h.goes_on IS NOT NULL THEN coalesce(g.records, 0) END AS readable,
  CASE WHEN h.goes_on IS NOT NULL THEN greatest(h.end_offset - greatest(h.goes_on, h.last_stable_offset), 0) END AS held,
  CASE WHEN h.goes_on IS NOT NULL THEN coalesce(y.markers, 0) END AS markers,
  CASE WHEN h.goes_on IS NOT NULL THEN coalesce(y.records, 0) - coalesce(y.markers, 0) - coalesce(g.records, 0) END AS aborted,
  CASE WHEN h.goes_on IS NOT NULL THEN greatest(h.last_stable_offset - h.goes_on, 0) - coalesce(y.records, 0) END AS no_records,
  CASE WHEN h.goes_on IS NULL THEN NULL WHEN h.goes_on > h.committed_offset THEN h.goes_on - greatest(h.committed_offset, 0) ELSE 0 END AS deleted,
  CASE WHEN h.goes_on IS NULL THEN NULL WHEN h.committed_offset > h.end_offset THEN h.committed_offset - h.end_offset ELSE 0 END AS past_end,
  CASE WHEN h.end_offset > h.goes_on AND h.end_offset > h.last_stable_offset THEN n.producer_id END AS held_by_producer,
  CASE WHEN h.end_offset > h.goes_on AND h.end_offset > h.last_stable_offset THEN n.transactional_id END AS held_by,
  h.cluster, h.unread_commits,
  CASE WHEN h.unread_commits > 0 THEN 'later commits of the group can''t be read (consumer_offsets.error): it may be further'
    WHEN h.log_start_offset IS NULL THEN 'the lake has no log of this partition in the group''s cluster'
    WHEN NOT h.is_whole THEN 'the last file of the log was left out or could not be read: it may end later'
    WHEN h.committed_offset > h.end_offset THEN 'the committed offset lies past the end of the log: the next fetch is out of range'
    WHEN h.committed_offset < h.log_start_offset THEN 'the committed offset lies below the log start: the group goes on where auto.offset.reset says'
    END AS note
FROM held h
LEFT JOIN lying y ON y.cluster = h.cluster AND y.`group` = h.`group` AND y.topic = h.topic AND y.partition = h.partition
LEFT JOIN given g ON g.cluster = h.cluster AND g.`group` = h.`group` AND g.topic = h.topic AND g.partition = h.partition
LEFT JOIN named n ON n.topic = h.topic AND n.partition = h.partition AND n.partition_dir = h.partition_dir
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, u.cluster,
  u.unread_records + u.damaged_ranges,
  'records of __consumer_offsets can''t be read (unread_internal): groups may be missing here, or be further'
FROM unread_internal u WHERE u.internal_topic = '__consumer_offsets'
