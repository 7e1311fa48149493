-- Where a group that moves to the target cluster begins to read a partition: the offset of its last checkpoint, as MirrorMaker's
-- RemoteClusterUtils.translateOffsets gives it; without a checkpoint in the lake, worked out from the offset syncs and the
-- group's commit in the source cluster. What cannot be translated has one row, whose note says why
-- Parameters:
--   wanted_group string: Group id
--   wanted_topic string: The topic, by its name in the target or in the source cluster
--   wanted_partition int: Its partition
-- Columns:
--   source_cluster string: Alias of the source cluster; null without a checkpoint
--   topic string: The topic in the target cluster; null without a checkpoint
--   source_topic string: The topic in the source cluster
--   translated_offset bigint: The offset in the target cluster that the group begins at; null where it cannot be translated
--   metadata string: Text of the commit
--   upstream_offset bigint: The group's commit in the source cluster that was translated
--   basis string: checkpoint, or offset_sync where it was worked out
--   checkpoint_timestamp timestamp: When the checkpoint was written; null without one
--   sync_upstream_offset bigint: Source offset of the offset sync that the translation comes from; null where the lake has no syncs
--   sync_downstream_offset bigint: The same record in the target cluster
--   sync_timestamp timestamp: When the sync was written
--   sync_age_ms bigint: From the sync, or the checkpoint, to the newest record of the partition; null where it has none
--   read_twice bigint: Records at most that the group gets again: it had read up to upstream_offset; null without a sync
--   committed_offset bigint: The group's last commit in the target cluster; null without one
--   skipped bigint: Records at most that a consumer that begins at committed_offset never gets; null without a commit
--   end_offset bigint: Where the partition ends in the target cluster; null where the lake does not have it
--   note string: What is missing for an answer or limits it; null where nothing does
WITH commits AS (
  SELECT topic, committed_offset, metadata FROM consumer_offsets
  WHERE is_current AND is_read AND NOT is_tombstone AND `group` = wanted_group AND partition = wanted_partition
), offered AS (
  SELECT source_cluster, topic, source_topic, upstream_offset, downstream_offset, metadata, record_timestamp, 'checkpoint' AS basis
  FROM mm2_checkpoints
  WHERE is_current AND NOT is_tombstone AND `group` = wanted_group AND partition = wanted_partition
    AND (topic = wanted_topic OR source_topic = wanted_topic)
  UNION ALL
  SELECT NULL, NULL, topic, committed_offset, NULL, metadata, NULL, 'offset_sync' FROM commits WHERE topic = wanted_topic
), numbered AS (
  -- a commit is translated only where no checkpoint is
  SELECT *, min(basis) OVER () AS first_basis,
    row_number() OVER (ORDER BY basis, source_cluster, topic, source_topic, record_timestamp, upstream_offset) AS place
  FROM offered
), fitting AS (
  SELECT t.*, s.topic AS synced_topic, s.upstream_offset AS sync_upstream, s.downstream_offset AS sync_downstream,
    s.record_timestamp AS sync_time, s.record_offset, s.log_topic, s.segment,
    s.partition = wanted_partition AND s.upstream_offset <= t.upstream_offset
      AND s.downstream_offset + CASE WHEN t.upstream_offset > s.upstream_offset THEN 1 ELSE 0 END
        = coalesce(t.downstream_offset, s.downstream_offset + CASE WHEN t.upstream_offset > s.upstream_offset THEN 1 ELSE 0 END) AS fits
  FROM numbered t LEFT JOIN mm2_offset_syncs s ON s.topic = t.source_topic
  WHERE t.basis = t.first_basis
), ranked AS (
  -- the newest sync at or before the commit that gives the translated offset: MirrorMaker keeps few syncs
  SELECT *, row_number() OVER (PARTITION BY place ORDER BY CASE WHEN fits THEN 0 ELSE 1 END, record_offset DESC, log_topic, segment) AS age
  FROM fitting WHERE basis = 'checkpoint' OR synced_topic IS NOT NULL
), translated AS (
  SELECT source_cluster, topic, source_topic, upstream_offset, downstream_offset, metadata, record_timestamp, basis,
    CASE WHEN fits THEN sync_upstream END AS sync_upstream_offset, CASE WHEN fits THEN sync_downstream END AS sync_downstream_offset,
    CASE WHEN fits THEN sync_time END AS sync_timestamp
  FROM ranked WHERE age = 1
), newest AS (
  SELECT topic, max(end_offset) AS end_offset FROM log_ends WHERE partition = wanted_partition GROUP BY topic
), times AS (
  SELECT topic, max(max_timestamp) AS last_timestamp FROM segments WHERE partition = wanted_partition GROUP BY topic
), known AS (
  SELECT count(CASE WHEN record.kind = 'mm2-checkpoint' THEN 1 END) AS checkpoints,
    count(CASE WHEN record.kind = 'mm2-offset-sync' THEN 1 END) AS syncs
  FROM mm2_records WHERE record.error IS NULL
), answers AS (
  SELECT t.source_cluster, t.topic, t.source_topic,
    coalesce(t.downstream_offset,
      t.sync_downstream_offset + CASE WHEN t.upstream_offset > t.sync_upstream_offset THEN 1 ELSE 0 END) AS translated_offset,
    t.metadata, t.upstream_offset, t.basis, t.record_timestamp, t.sync_upstream_offset, t.sync_downstream_offset, t.sync_timestamp,
    -- greatest() leaves nulls out
    CASE WHEN w.last_timestamp < coalesce(t.sync_timestamp, t.record_timestamp) THEN 0
      ELSE unix_millis(w.last_timestamp) - unix_millis(coalesce(t.sync_timestamp, t.record_timestamp)) END AS sync_age_ms,
    CASE WHEN t.upstream_offset > t.sync_upstream_offset THEN t.upstream_offset - t.sync_upstream_offset - 1
      WHEN t.upstream_offset = t.sync_upstream_offset THEN 0 END AS read_twice,
    own.committed_offset, e.end_offset, k.checkpoints, k.syncs
  FROM known k LEFT JOIN translated t ON true
  LEFT JOIN newest e ON e.topic = t.topic
  LEFT JOIN times w ON w.topic = coalesce(t.topic, t.source_topic)
  LEFT JOIN commits own ON own.topic = t.topic
)
SELECT source_cluster, topic, source_topic, translated_offset, metadata, upstream_offset, basis, record_timestamp, sync_upstream_offset,
  sync_downstream_offset, sync_timestamp, sync_age_ms, read_twice, committed_offset,
  CASE WHEN committed_offset IS NOT NULL THEN greatest(committed_offset - translated_offset, 0) END AS skipped,
  end_offset,
  CASE WHEN basis IS NULL AND checkpoints = 0 AND syncs = 0 THEN 'the lake has no topics of MirrorMaker''s checkpoints or offset syncs'
    WHEN basis IS NULL AND checkpoints > 0 THEN 'no checkpoint of this group has the partition: it is not translated'
    WHEN basis IS NULL THEN 'no commit of this group in the source cluster has an offset sync'
    WHEN translated_offset IS NULL THEN 'no offset sync is at or before the group''s commit: the records before the first sync cannot be translated'
    WHEN translated_offset > end_offset THEN 'past the end of the partition in the target cluster: auto.offset.reset says where the group begins'
    WHEN basis = 'offset_sync' THEN 'worked out from the offset syncs: the lake has no checkpoint of the group for this partition'
    WHEN sync_upstream_offset IS NULL THEN 'no offset sync in the lake gives this translation (they lie in the source cluster): how much is read twice is not known' END AS note
FROM answers
