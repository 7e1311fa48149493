-- The segments that tiered storage copied away and deleted: a row a change of state
-- Columns:
--   topic string: Topic
--   partition int: Its partition
--   topic_id string: Topic id
--   segment_id string: Id of the remote segment; null where the row is of a partition
--   kind string: Kafka's name of the record; null where the API key is not known
--   state string: COPY_SEGMENT_STARTED, COPY_SEGMENT_FINISHED, DELETE_SEGMENT_STARTED, DELETE_SEGMENT_FINISHED, or of a partition DELETE_PARTITION_MARKED, _STARTED, _FINISHED; null for a number that Kafka does not have
--   start_offset bigint: First offset of the segment; null in an update
--   end_offset bigint: Last offset of the segment; null in an update
--   size_bytes int: Size of the segment; null in an update
--   broker_id int: Broker that wrote the record
--   max_timestamp_ms bigint: Highest timestamp in the segment; null in an update
--   event_timestamp_ms bigint: When the state changed
--   record string: The record as JSON
--   is_current boolean: The last record of this segment, or partition, in its cluster, of equal ones in several copies the first
--   version int: Version as stored
--   log_partition int: Partition of `__remote_log_metadata`
--   record_offset, record_timestamp, segment, cluster, error, raw_value: as in consumer_offsets
WITH decoded AS (
  SELECT d.name, d.version, d.value AS record, d.error, value, partition, offset, timestamp, segment, cluster,
    get_json_object(d.value, '$.remoteLogSegmentId.topicIdPartition') AS of_segment,
    get_json_object(d.value, '$.topicIdPartition') AS of_partition
  FROM (SELECT *, kafka_internal_record(topic, key, value) AS d FROM internal_records WHERE topic = '__remote_log_metadata')
), named AS (
  SELECT *, get_json_object(coalesce(of_segment, of_partition), '$.name') AS topic_name,
    get_json_object(coalesce(of_segment, of_partition), '$.id') AS topic_id,
    CAST(get_json_object(coalesce(of_segment, of_partition), '$.partition') AS INT) AS topic_partition,
    coalesce(get_json_object(record, '$.remoteLogSegmentId.id'), get_json_object(record, '$.segmentId'))
      AS segment_id,
    CAST(get_json_object(record, '$.remoteLogSegmentState') AS INT) AS segment_state,
    CAST(get_json_object(record, '$.remotePartitionDeleteState') AS INT) AS delete_state
  FROM decoded
)
SELECT topic_name AS topic, topic_partition AS partition, topic_id, segment_id, name AS kind,
  CASE segment_state WHEN 0 THEN 'COPY_SEGMENT_STARTED' WHEN 1 THEN 'COPY_SEGMENT_FINISHED'
    WHEN 2 THEN 'DELETE_SEGMENT_STARTED' WHEN 3 THEN 'DELETE_SEGMENT_FINISHED'
    ELSE CASE delete_state WHEN 0 THEN 'DELETE_PARTITION_MARKED' WHEN 1 THEN 'DELETE_PARTITION_STARTED'
      WHEN 2 THEN 'DELETE_PARTITION_FINISHED' END
  END AS state,
  CAST(get_json_object(record, '$.startOffset') AS BIGINT) AS start_offset,
  CAST(get_json_object(record, '$.endOffset') AS BIGINT) AS end_offset,
  CAST(get_json_object(record, '$.segmentSizeInBytes') AS INT) AS size_bytes,
  CAST(get_json_object(record, '$.brokerId') AS INT) AS broker_id,
  CAST(get_json_object(record, '$.maxTimestampMs') AS BIGINT) AS max_timestamp_ms,
  CAST(get_json_object(record, '$.eventTimestampMs') AS BIGINT) AS event_timestamp_ms, record,
  error IS NULL AND row_number() OVER (
    PARTITION BY cluster, partition, topic_id, topic_partition, segment_id ORDER BY offset DESC, segment) = 1 AS is_current,
  version, partition AS log_partition, offset AS record_offset, timestamp AS record_timestamp, segment, cluster,
  error, if(error IS NOT NULL, value, NULL) AS raw_value
FROM named
