-- What groups committed: a row a commit, and a tombstone where one was deleted or expired
-- Columns:
--   group string: Group id
--   topic string: Topic of the committed offset
--   partition int: Its partition
--   committed_offset bigint: The next offset that the group will read; null for a tombstone
--   leader_epoch int: Leader epoch of the last record read; -1 none, null for a tombstone
--   metadata string: Text that the client added
--   commit_timestamp timestamp: When the coordinator took the commit
--   expire_timestamp timestamp: When the offset expires; null but in version 1
--   topic_id string: Topic id; null where the client sent none
--   is_tombstone boolean: The commit was deleted
--   is_current boolean: The last record of this group, topic and partition in its cluster, of equal ones in several copies the first
--   version int: Version of the value, 0 to 4; null for a tombstone
--   log_partition int: Partition of `__consumer_offsets`
--   record_offset bigint: Offset of the record there
--   record_timestamp timestamp: Its timestamp
--   segment string: Canonical URI of the segment file
--   cluster string: The cluster that the record's copy belongs to (`log_clusters`)
--   is_read boolean: A coordinator reads the record: nothing is wrong with it but surplus bytes
--   error string: Why it cannot be read; else null
--   raw_key binary: The key, where there is an error
--   raw_value binary: The value, where there is an error
--   streams_metadata string: What Kafka Streams puts into metadata, as JSON: partitionTime, the time that the task has reached in the partition, and processorMetadata; null for other texts
SELECT c.`group`, c.topic, c.partition, c.committed_offset, c.leader_epoch, c.metadata, c.commit_timestamp,
  c.expire_timestamp, c.topic_id, value IS NULL AS is_tombstone,
  -- Key types 0 and 1 have the same fields after them
  row_number() OVER (PARTITION BY cluster, partition, substring(hex(key), 5) ORDER BY offset DESC, segment) = 1 AS is_current,
  c.version, partition AS log_partition, offset AS record_offset, timestamp AS record_timestamp, segment, cluster, c.is_read,
  c.error, if(c.error IS NOT NULL, key, NULL) AS raw_key, if(c.error IS NOT NULL, value, NULL) AS raw_value, c.streams_metadata
FROM (
  SELECT *, kafka_offset_commit(key, value) AS c FROM internal_records
  WHERE topic = '__consumer_offsets' AND substring(hex(key), 1, 4) IN ('0000', '0001')
)
