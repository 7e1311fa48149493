-- How the groups stand now, and their members: of the classic protocol, and of the consumer, share and streams protocols. It is
-- the state that a coordinator has when it has loaded `__consumer_offsets`. A row a member; a group without members has one
-- row, without a member. Groups that only commit are in `group_lag`
-- Columns:
--   group string: Group id; null in a row of unread records of which the group is not known
--   type string: Classic, Consumer, Share or Streams
--   state string: Empty, Stable, Assigning, Reconciling or NotReady, as Kafka's Admin names it; null for a Streams group with members of a release before 4.2. A rebalance of the classic protocol is in no log: Stable
--   group_epoch int: Epoch of the group; generation of the classic protocol
--   assignment_epoch int: Epoch of the target assignment; null for the classic protocol
--   assignor string: Classic protocol: the assignor; consumer protocol: the one that most members ask for, null where the broker's first one is taken
--   member_id string: Member id; null for a group without members
--   client_id string: Its client id
--   client_host string: Its address
--   instance_id string: Its group.instance.id, if it is static
--   is_classic boolean: The member speaks the classic protocol
--   member_epoch int: Its epoch; -2 for a static member that is away; null for the classic protocol
--   member_state string: STABLE, UNREVOKED_PARTITIONS or UNRELEASED_PARTITIONS, of Streams UNREVOKED_TASKS or UNRELEASED_TASKS; null for the classic protocol
--   subscribed_topics array<string>: Topics that it subscribed to by name; null where its protocol is not that of consumers
--   regular_expression string: The regular expression that it subscribed to
--   matched_topics array<string>: Topics that the expression matched last
--   assigned string: What it has, as JSON: topic to partitions; of Streams role to subtopology to partitions. A topic of which the lake has no log is its topic id. Null for other protocols
--   target string: What it is to have, likewise; null for the classic protocol
--   updated timestamp: Time of the group's last record that counts
--   cluster string: The cluster of the group (`log_clusters`)
--   unread_records bigint: Records of the group that can't be read: the state may be another
WITH held AS (
  SELECT cluster, `group`, max(record_timestamp) AS updated,
    count(*) FILTER (WHERE error IS NOT NULL AND state IS NULL) AS unread_records,
    '[' || array_join(array_agg('{"offset":' || record_offset || ',"kind":"' || kind || '","key":' || record_key || ',"value":' || state || '}'), ',')
      || ']' AS records
  FROM consumer_groups WHERE is_current AND NOT is_tombstone AND `group` IS NOT NULL
  GROUP BY cluster, `group`
), topics_of AS (
  SELECT cluster, array_join(array_agg(topic_id || ' ' || topic), chr(10)) AS topics
  FROM (
    SELECT DISTINCT l.cluster, f.topic_id, f.topic
    FROM log_clusters l JOIN segments f ON f.topic = l.topic AND f.partition = l.partition AND f.partition_dir = l.partition_dir
    WHERE l.internal_topic = '__consumer_offsets' AND f.topic_id IS NOT NULL
  )
  GROUP BY cluster
), members AS (
  SELECT h.cluster, h.`group`, h.updated, h.unread_records, explode(kafka_group_members(h.records, t.topics)) AS m
  FROM held h LEFT JOIN topics_of t ON t.cluster = h.cluster
)
SELECT `group`, m.group_type AS type, m.state, m.group_epoch, m.assignment_epoch, m.assignor, m.member_id, m.client_id, m.client_host,
  m.instance_id, m.is_classic, m.member_epoch, m.member_state, m.subscribed AS subscribed_topics, m.expression AS regular_expression,
  m.matched AS matched_topics, m.assigned, m.target, updated, cluster, unread_records
FROM members
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, u.cluster,
  u.unread_records + u.damaged_ranges
FROM unread_internal u WHERE u.internal_topic = '__consumer_offsets'
