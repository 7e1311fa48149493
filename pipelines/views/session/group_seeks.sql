-- Where each consumer group must seek after a loss: the losses (lost_offsets) that it has not passed, by its last committed
-- offset. A group that followed a wrong base offset has committed an offset past the end of the log: it skipped what lies
-- after that batch, and its next fetch is out of range; so is that of one whose committed offset lies below the log start.
-- A lake without `__consumer_offsets` has no row
-- Columns:
--   group string: Group id
--   topic, partition: as in lost_offsets
--   partition_dir string: Canonical URI of the partition folder: each copy of a partition has its own losses
--   committed_offset bigint: The next offset that the group will read; null where no commit of it can be read
--   cause string: As in lost_offsets; past_the_end: the committed offset is above the end of the log; before_the_start: it is below the log start (`log_starts`)
--   first_lost bigint: First lost offset, not below the log start; of past_the_end the end of the log; of before_the_start the committed offset
--   last_lost bigint: Last lost offset; null where nothing sound follows, and for past_the_end
--   records_lost decimal(20,0): Upper bound of the records that the group does not get; null where last_lost is
--   is_certain boolean: Records were there (lost_offsets); for past_the_end whether a wrong base offset in the log explains it
--   seek_to bigint: Where the group goes on; null where nothing sound follows
--   reset_command string: The command that moves the stopped group there; null where it would skip sound records
--   cluster string: The cluster of the group and of the log (log_clusters)
--   unread_commits bigint: Later commits of the group to this partition that can't be read: it may be further
WITH held AS (
  SELECT c.cluster, c.`group`, c.topic, c.partition, l.partition_dir, c.committed_offset, c.unread_commits, b.log_start_offset,
    b.is_cut
  FROM group_positions c JOIN log_clusters l ON l.cluster = c.cluster AND l.topic = c.topic AND l.partition = c.partition
    AND l.internal_topic = '__consumer_offsets'
  JOIN log_starts b ON b.topic = l.topic AND b.partition = l.partition AND b.partition_dir = l.partition_dir
), losses AS (
  SELECT topic, partition, partition_dir, cause, first_lost, last_lost, is_certain, next_offset FROM lost_offsets
  UNION ALL
  SELECT topic, partition, partition_dir, 'past_the_end', end_offset, NULL, NULL, NULL FROM log_ends
), explained AS (
  SELECT *, min(CASE WHEN cause = 'wrong_base_offset' THEN next_offset END)
    OVER (PARTITION BY topic, partition, partition_dir) AS after_wrong
  FROM losses
), sought AS (
  SELECT h.cluster, h.`group`, h.topic, h.partition, h.partition_dir, h.committed_offset, h.unread_commits, d.cause,
    CASE WHEN h.is_cut AND d.cause <> 'past_the_end' THEN greatest(d.first_lost, h.log_start_offset) ELSE d.first_lost END AS first_lost,
    d.last_lost,
    CASE WHEN d.cause = 'past_the_end' THEN d.after_wrong IS NOT NULL ELSE d.is_certain END AS is_certain,
    CASE WHEN d.cause = 'past_the_end' THEN coalesce(d.after_wrong, d.first_lost) ELSE d.next_offset END AS seek_to
  FROM held h JOIN explained d ON d.topic = h.topic AND d.partition = h.partition AND d.partition_dir = h.partition_dir
  -- no consumer gets what lies below the log start: nothing is lost there
  WHERE CASE WHEN d.cause = 'past_the_end' THEN h.committed_offset > d.first_lost
    ELSE d.last_lost IS NULL OR (coalesce(h.committed_offset, d.last_lost) <= d.last_lost
      AND NOT (h.is_cut AND d.last_lost < h.log_start_offset)) END
  UNION ALL
  SELECT cluster, `group`, topic, partition, partition_dir, committed_offset, unread_commits, 'before_the_start', committed_offset,
    log_start_offset - 1, false, log_start_offset
  FROM held WHERE is_cut AND committed_offset < log_start_offset
)
SELECT `group`, topic, partition, partition_dir, committed_offset, cause, first_lost, last_lost,
  CAST(CAST(last_lost AS DECIMAL(20, 0)) + 1 - greatest(first_lost, coalesce(committed_offset, first_lost)) AS DECIMAL(20, 0)) AS records_lost,
  is_certain, seek_to,
  -- pasted into a terminal, control characters act in spite of quotes
  CASE WHEN committed_offset >= first_lost AND regexp_replace(topic || `group`, '[' || chr(92) || 'p{C}' || chr(92) || 'p{Zl}' || chr(92) || 'p{Zp}]', '') = topic || `group`
    THEN 'kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group ''' || replace(`group`, '''', '''' || chr(92) || '''''')
    || ''' --topic ''' || replace(topic, '''', '''' || chr(92) || '''''') || ':' || partition
    || ''' --reset-offsets --to-offset ' || seek_to || ' --execute' END AS reset_command, cluster, unread_commits
FROM sought
