-- The instances of Kafka Streams' applications and their tasks, by what groups kept of them: a row a task of a member, in each
-- generation of the group
-- Columns:
--   application string: Application id: the group
--   protocol string: classic, or streams (KIP-1071)
--   generation int: Generation of the group, or epoch of the member
--   process_id string: The instance
--   member_id string: The member: a thread of the instance
--   client_id string: Its client id
--   client_host string: Its address
--   endpoint string: Where it answers interactive queries (application.server); null where it does not
--   metadata_version int: Version of what the member told the leader; null for streams
--   task string: Subtopology and partition, such as 1_0; null for a member without tasks
--   role string: active, standby or warmup; null for a member without tasks
--   partitions string: What the task reads, separated by commas; null but for active tasks of the classic protocol
--   stores array<string>: Topics of the changelogs of the task's stores; null where the log does not say: the classic protocol never does
--   is_current boolean: The group's last state in its cluster
--   record_timestamp, cluster: as in consumer_offsets
WITH held AS (
  SELECT cluster, `group`, kind, member_id, generation, is_current, record_timestamp, state, explode(kafka_streams_tasks(kind, state)) AS t
  FROM consumer_groups
  WHERE state IS NOT NULL AND error IS NULL AND (protocol = 'stream' OR kind IN ('StreamsGroupCurrentMemberAssignment', 'StreamsGroupTopology'))
), members AS (
  SELECT cluster, `group`, member_id, state, row_number() OVER (PARTITION BY cluster, `group`, member_id ORDER BY record_offset DESC, segment) AS age
  FROM consumer_groups WHERE kind = 'StreamsGroupMemberMetadata' AND state IS NOT NULL AND error IS NULL
), stores AS (
  SELECT cluster, `group`, subtopology, sort_array(array_agg(store)) AS stores
  FROM (SELECT DISTINCT cluster, `group`, t.task AS subtopology, t.store AS store FROM held WHERE t.role = 'store')
  GROUP BY cluster, `group`, subtopology
)
SELECT h.`group`, CASE WHEN h.kind = 'GroupMetadata' THEN 'classic' ELSE 'streams' END, h.generation,
  coalesce(h.t.process, get_json_object(m.state, '$.processId')), coalesce(h.t.member, h.member_id),
  coalesce(h.t.client, get_json_object(m.state, '$.clientId')), coalesce(h.t.host, get_json_object(m.state, '$.clientHost')),
  coalesce(h.t.endpoint, get_json_object(m.state, '$.userEndpoint.host') || ':' || get_json_object(m.state, '$.userEndpoint.port')),
  h.t.version, h.t.task, h.t.role, h.t.partitions, s.stores, h.is_current, h.record_timestamp, h.cluster
FROM held h
LEFT JOIN members m ON h.kind <> 'GroupMetadata' AND m.age = 1 AND coalesce(m.cluster, '') = coalesce(h.cluster, '')
  AND m.`group` = h.`group` AND m.member_id = h.member_id
LEFT JOIN stores s ON h.kind <> 'GroupMetadata' AND coalesce(s.cluster, '') = coalesce(h.cluster, '') AND s.`group` = h.`group`
  AND s.subtopology = regexp_replace(h.t.task, '_-?[0-9]+$', '')
WHERE coalesce(h.t.role, '') <> 'store'
