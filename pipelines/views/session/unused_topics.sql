-- Topics that nobody has used since a time: no record with a later timestamp, and no later commit of any group, share group or
-- transaction's group to one of their partitions. Who reads without a group, or keeps its offsets elsewhere, leaves no trace in
-- a log: ask before you delete. Kafka's own topics are left out
-- Parameters:
--   since timestamp: The time
-- Columns:
--   topic string: Topic
--   partitions bigint: Partitions
--   bytes bigint: Bytes of its segments, of all copies
--   records bigint: Data records
--   last_write timestamp: Highest timestamp of its records; null without one
--   last_commit timestamp: When a group committed last to it; null where no commit is known
--   groups bigint: Groups that have a committed offset in it
--   unread_records bigint: Records and damaged ranges of internal topics that can't be read (`unread_internal`): one may be a later commit
--   note string: What is missing for a certain answer; null where nothing is
WITH writes AS (
  SELECT topic, count(DISTINCT partition) AS partitions, sum(bytes) AS bytes, sum(records) AS records, max(last_timestamp) AS last_write
  FROM logs GROUP BY topic
), uses AS (
  SELECT topic, `group`, record_timestamp AS used_at, is_current AND NOT is_tombstone AS is_held FROM consumer_offsets WHERE NOT is_tombstone
  UNION ALL
  SELECT topic, `group`, updated, true FROM share_groups
), commits AS (
  SELECT topic, max(used_at) AS last_commit, count(DISTINCT CASE WHEN is_held THEN `group` END) AS groups FROM uses GROUP BY topic
), unread AS (
  SELECT coalesce(sum(unread_records + damaged_ranges), 0) AS records FROM unread_internal
  WHERE internal_topic IN ('__consumer_offsets', '__share_group_state')
), known AS (
  SELECT count(*) AS segments FROM segments WHERE topic = '__consumer_offsets'
)
SELECT w.topic, w.partitions, w.bytes, w.records, w.last_write, c.last_commit, coalesce(c.groups, 0) AS groups,
  CAST(u.records AS BIGINT) AS unread_records,
  CASE WHEN k.segments = 0 THEN 'the lake has no __consumer_offsets: no commit is known'
    WHEN u.records > 0 THEN 'some records of internal topics can''t be read (unread_internal): one may be a later commit'
    WHEN w.last_write IS NULL THEN 'it has no record with a timestamp' END AS note
FROM writes w LEFT JOIN commits c ON c.topic = w.topic CROSS JOIN unread u CROSS JOIN known k
WHERE coalesce(w.last_write < since, true) AND coalesce(c.last_commit < since, true) AND w.topic NOT IN $INTERNAL_TOPICS
