-- What a group had committed at a time, and how far behind the end of each log it was then. In a lake with the logs of
-- several clusters, a group of one name is another group in each. A group of which no commit is known has one row, without a
-- topic, whose note says why
-- Parameters:
--   wanted_group string: Group id
--   at_time timestamp: The time
-- Columns:
--   topic string: Topic of the committed offset; null where no commit of the group is known
--   partition int: Its partition
--   committed_offset bigint: The last offset that the group had committed by then; null where no commit of it can be read
--   commit_timestamp timestamp: When it was committed
--   end_offset bigint: Offset after the last record of the cluster's logs with a timestamp up to then; null without one
--   lag bigint: Offsets from committed_offset, or the log start if that is higher, to end_offset; null without one
--   log_start_offset bigint: Where the log begins for consumers as of the last run (`log_starts`), of several copies the highest; null where the lake has no log of it
--   cluster string: The cluster of the group and of the logs (`log_clusters`): topic id of `__consumer_offsets`, else the log directory of its copy
--   unread_commits bigint: Later commits of the group to this partition that can't be read: it may have been further
--   note string: What is missing for a certain answer; null where nothing is
--   last_stable_offset bigint: Where READ_COMMITTED consumers stopped then: the first offset of the first transaction that was open, else end_offset
--   readable_lag bigint: Offsets from committed_offset, or from log_start_offset if that is higher, to last_stable_offset: a READ_COMMITTED consumer could get no further then
WITH said AS (
  SELECT c.cluster, c.topic, c.partition, c.committed_offset, c.commit_timestamp, c.record_offset, c.segment, c.is_read,
    max(CASE WHEN c.is_read THEN c.record_offset END) OVER (PARTITION BY c.cluster, c.topic, c.partition) AS last_read
  FROM consumer_offsets c
  WHERE c.`group` = wanted_group AND c.record_timestamp <= at_time
), commits AS (
  SELECT *, row_number() OVER (PARTITION BY cluster, topic, partition
      ORDER BY CASE WHEN is_read THEN 0 ELSE 1 END, record_offset DESC, segment) AS age,
    count(CASE WHEN NOT is_read AND record_offset > coalesce(last_read, -1) THEN 1 END)
      OVER (PARTITION BY cluster, topic, partition) AS unread_commits
  FROM said
), held AS (
  SELECT cluster, topic, partition, CASE WHEN is_read THEN committed_offset END AS committed_offset,
    CASE WHEN is_read THEN commit_timestamp END AS commit_timestamp, unread_commits
  FROM commits WHERE age = 1 AND (unread_commits > 0 OR (is_read AND committed_offset IS NOT NULL))
), logs_of AS (
  SELECT l.cluster, l.topic, l.partition, max(b.log_start_offset) AS log_start_offset
  FROM log_clusters l JOIN log_starts b ON b.topic = l.topic AND b.partition = l.partition AND b.partition_dir = l.partition_dir
  WHERE l.internal_topic = '__consumer_offsets'
  GROUP BY l.cluster, l.topic, l.partition
), ends AS (
  SELECT l.cluster, r.topic, r.partition, CAST(least(CAST(max(r.offset) AS DECIMAL(38, 0)) + 1, 9223372036854775807) AS BIGINT) AS end_offset
  FROM published_records r JOIN log_clusters l ON l.topic = r.topic AND l.partition = r.partition
    AND l.partition_dir = r.partition_dir AND l.internal_topic = '__consumer_offsets'
  WHERE r.timestamp <= at_time AND r.topic IN (SELECT topic FROM held)
  GROUP BY l.cluster, r.topic, r.partition
), stretches AS ( -- of transactions; of several copies of a log some may lack the marker
  SELECT l.cluster, t.topic, t.partition, t.producer_id, t.first_offset, max(t.marker_offset) AS marker_offset
  FROM transactions t JOIN log_clusters l ON l.topic = t.topic AND l.partition = t.partition
    AND l.partition_dir = t.partition_dir AND l.internal_topic = '__consumer_offsets'
  WHERE t.first_offset IS NOT NULL AND t.topic IN (SELECT topic FROM held)
  GROUP BY l.cluster, t.topic, t.partition, t.producer_id, t.first_offset
), stable AS (
  SELECT e.cluster, e.topic, e.partition, min(t.first_offset) AS last_stable_offset
  FROM ends e JOIN stretches t ON t.cluster = e.cluster AND t.topic = e.topic AND t.partition = e.partition
    AND t.first_offset < e.end_offset AND (t.marker_offset IS NULL OR t.marker_offset >= e.end_offset)
  GROUP BY e.cluster, e.topic, e.partition
), known AS (
  SELECT count(*) AS commits, count(CASE WHEN is_read AND committed_offset IS NOT NULL THEN 1 END) AS offsets,
    count(CASE WHEN is_by_then THEN 1 END) AS commits_by_then
  FROM (SELECT *, record_timestamp <= at_time AS is_by_then FROM consumer_offsets WHERE `group` = wanted_group)
), members AS (
  SELECT count(*) AS records FROM consumer_groups WHERE `group` = wanted_group
), copies AS (
  SELECT count(*) AS segments FROM segments WHERE topic = '__consumer_offsets'
), unread AS (
  SELECT coalesce(sum(unread_records + damaged_ranges), 0) AS records FROM unread_internal WHERE internal_topic = '__consumer_offsets'
), answers AS (
  SELECT count(*) AS found FROM held
)
SELECT h.topic, h.partition, h.committed_offset, h.commit_timestamp, e.end_offset,
  CASE WHEN e.end_offset IS NOT NULL AND h.committed_offset IS NOT NULL THEN CAST(least(greatest(
    CAST(e.end_offset AS DECIMAL(38, 0)) - greatest(h.committed_offset, coalesce(o.log_start_offset, h.committed_offset)), 0),
    9223372036854775807) AS BIGINT) END AS lag,
  o.log_start_offset, h.cluster, h.unread_commits,
  CASE WHEN h.unread_commits > 0 THEN 'later commits of the group can''t be read (consumer_offsets.error): it may have been further'
    WHEN o.log_start_offset IS NULL THEN 'the lake has no log of this partition in the group''s cluster'
    WHEN e.end_offset IS NULL THEN 'the lake has no record of this partition up to that time'
    WHEN u.records > 0 THEN 'some records of __consumer_offsets can''t be read (unread_internal): one may be a later commit of the group'
    WHEN h.committed_offset < o.log_start_offset THEN 'the committed offset lies below the log start: the group goes on where auto.offset.reset says'
    END AS note, coalesce(s.last_stable_offset, e.end_offset) AS last_stable_offset,
  CASE WHEN e.end_offset IS NOT NULL AND h.committed_offset IS NOT NULL THEN CAST(least(greatest(
    CAST(coalesce(s.last_stable_offset, e.end_offset) AS DECIMAL(38, 0)) - greatest(h.committed_offset, coalesce(o.log_start_offset, h.committed_offset)), 0),
    9223372036854775807) AS BIGINT) END AS readable_lag
FROM held h CROSS JOIN unread u LEFT JOIN ends e ON e.cluster = h.cluster AND e.topic = h.topic AND e.partition = h.partition
LEFT JOIN logs_of o ON o.cluster = h.cluster AND o.topic = h.topic AND o.partition = h.partition
LEFT JOIN stable s ON s.cluster = h.cluster AND s.topic = h.topic AND s.partition = h.partition
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, CAST(NULL AS BIGINT),
  CASE WHEN c.segments = 0 THEN 'the lake has no __consumer_offsets: no group is known'
    WHEN k.commits_by_then > 0 THEN 'the commits of the group had been deleted, or had expired, by then'
    WHEN k.offsets > 0 THEN 'the group committed nothing by then, but later'
    WHEN k.commits > 0 THEN 'the lake has only deletions of the group''s commits'
    WHEN m.records > 0 THEN 'the group has members, and no commit'
    ELSE 'no group of this name has a record in the partitions of __consumer_offsets that the lake has' END
  || CASE WHEN u.records > 0 THEN '; some of its records can''t be read (unread_internal): they may be of the group' ELSE '' END, NULL, CAST(NULL AS BIGINT)
FROM known k CROSS JOIN members m CROSS JOIN copies c CROSS JOIN unread u CROSS JOIN answers a WHERE a.found = 0
