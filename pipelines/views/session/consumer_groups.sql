-- What a group coordinator keeps of groups but offsets: members, epochs and assignments; also what cannot be read
-- Columns:
--   group string: Group id
--   kind string: Kafka's name of the message, without Key and Value; null where the type is not known
--   member_id string: Member id; null where the record is of the group
--   protocol_type string: Classic protocol: consumer, connect, ...
--   protocol string: Classic protocol: the assignor
--   generation int: Generation of the classic protocol; else the epoch of the group, assignment or member
--   leader string: Classic protocol: member id of the leader
--   members string: Classic protocol: the members as JSON, with subscriptions and assignments of consumers
--   state string: The whole value as JSON; null for a tombstone
--   is_tombstone boolean: The record's key was deleted
--   is_current boolean: The last record of this key in its cluster, of equal ones in several copies the first
--   record_type int: Record type as stored
--   version int: Version of the value; null for a tombstone
--   log_partition, record_offset, record_timestamp, segment, cluster, error, raw_key, raw_value: as in consumer_offsets
--   record_key string: The whole key as JSON
SELECT coalesce(get_json_object(d.key, '$.group'), get_json_object(d.key, '$.groupId')) AS `group`,
  d.name AS kind, get_json_object(d.key, '$.memberId') AS member_id,
  get_json_object(d.value, '$.protocolType') AS protocol_type,
  get_json_object(d.value, '$.protocol') AS protocol,
  CAST(coalesce(get_json_object(d.value, '$.generation'), get_json_object(d.value, '$.epoch'),
    get_json_object(d.value, '$.assignmentEpoch'), get_json_object(d.value, '$.memberEpoch')) AS INT)
    AS generation,
  get_json_object(d.value, '$.leader') AS leader, get_json_object(d.value, '$.members') AS members,
  d.value AS state, value IS NULL AS is_tombstone,
  row_number() OVER (PARTITION BY cluster, partition, key ORDER BY offset DESC, segment) = 1 AS is_current,
  d.type AS record_type, d.version, partition AS log_partition, offset AS record_offset,
  timestamp AS record_timestamp, segment, cluster,
  d.error, if(d.error IS NOT NULL, key, NULL) AS raw_key, if(d.error IS NOT NULL, value, NULL) AS raw_value,
  d.key AS record_key
FROM (
  SELECT *, kafka_internal_record(topic, key, value) AS d FROM internal_records
  WHERE topic = '__consumer_offsets' AND coalesce(substring(hex(key), 1, 4) NOT IN ('0000', '0001'), true)
)
