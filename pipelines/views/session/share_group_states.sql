-- What a share coordinator keeps of share groups: the start offset and the batches in flight, by partition
-- Columns:
--   group string: Group id
--   topic_id string: Topic id
--   partition int: Partition of that topic
--   kind string: ShareSnapshot, or ShareUpdate: a change since the last snapshot
--   snapshot_epoch int: Snapshot epoch
--   state_epoch int: State epoch; null for an update
--   leader_epoch int: Leader epoch
--   start_offset bigint: First offset that is in flight; -1 in an update that does not change it
--   batches string: State batches as JSON: offsets, delivery state and count
--   state string: The whole value as JSON; null for a tombstone
--   is_tombstone: as in consumer_groups
--   is_current boolean: The last snapshot of this group, topic and partition in its cluster, or an update after it; of equal records in several copies the first
--   version: as in consumer_groups
--   log_partition int: Partition of `__share_group_state`
--   record_offset, record_timestamp, segment, cluster, error, raw_key, raw_value: as in consumer_offsets
SELECT get_json_object(d.key, '$.groupId') AS `group`, get_json_object(d.key, '$.topicId') AS topic_id,
  CAST(get_json_object(d.key, '$.partition') AS INT) AS partition, d.name AS kind,
  CAST(get_json_object(d.value, '$.snapshotEpoch') AS INT) AS snapshot_epoch,
  CAST(get_json_object(d.value, '$.stateEpoch') AS INT) AS state_epoch,
  CAST(get_json_object(d.value, '$.leaderEpoch') AS INT) AS leader_epoch,
  CAST(get_json_object(d.value, '$.startOffset') AS BIGINT) AS start_offset,
  get_json_object(d.value, '$.stateBatches') AS batches, d.value AS state, value IS NULL AS is_tombstone,
  row_number() OVER (PARTITION BY cluster, partition, key, offset ORDER BY segment) = 1 AND offset >= coalesce(
    -- a coordinator replays the updates after a snapshot; both keys are alike but for the record type
    max(if(d.name = 'ShareUpdate', NULL, offset)) OVER (PARTITION BY cluster, partition, coalesce(d.key, base64(key))),
    offset) AS is_current,
  d.version, partition AS log_partition, offset AS record_offset, timestamp AS record_timestamp, segment, cluster,
  d.error, if(d.error IS NOT NULL, key, NULL) AS raw_key, if(d.error IS NOT NULL, value, NULL) AS raw_value
FROM (SELECT *, kafka_internal_record(topic, key, value) AS d FROM internal_records WHERE topic = '__share_group_state')
