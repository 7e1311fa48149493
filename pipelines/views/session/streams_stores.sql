-- The stores of Kafka Streams, by their changelogs: topics whose names end in -changelog
-- Columns:
--   application string: Application id; null where it is not known
--   store string: Name of the store; null without an application
--   topic string: Topic of the changelog
--   kind string: What it is taken for (docs/applications.md); null where that is not certain
--   certainty string: declared or recognised; null without a kind
--   partitions bigint: Partitions: as many tasks
--   records bigint: Records of the changelog that count
--   keys bigint: Keys with a value
--   deleted_keys bigint: Keys whose last record deletes them
--   bytes bigint: Bytes of the keys and values that the store has
--   oldest timestamp: Lowest timestamp of an entry that it has
--   newest timestamp: Highest timestamp of an entry that it has
WITH held AS (
  SELECT topic, partition, offset, timestamp, key, value,
    row_number() OVER (PARTITION BY topic, partition, offset ORDER BY segment) AS copy
  FROM committed_records WHERE topic LIKE '%-changelog' AND key IS NOT NULL
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY topic, partition, hex(key) ORDER BY offset DESC) AS age
  FROM held WHERE copy = 1
), said AS (
  SELECT topic, kafka_topic_format(topic, array_agg((key, value, headers))) AS f
  FROM topic_samples WHERE topic LIKE '%-changelog' GROUP BY topic
), counted AS (
  SELECT topic, count(DISTINCT partition) AS partitions, count(*) AS records,
    count(CASE WHEN age = 1 AND value IS NOT NULL THEN 1 END) AS keys, count(CASE WHEN age = 1 AND value IS NULL THEN 1 END) AS deleted_keys,
    sum(CASE WHEN age = 1 AND value IS NOT NULL THEN octet_length(key) + octet_length(value) ELSE 0 END) AS bytes,
    min(CASE WHEN age = 1 AND value IS NOT NULL THEN timestamp END) AS oldest,
    max(CASE WHEN age = 1 AND value IS NOT NULL THEN timestamp END) AS newest
  FROM ranked GROUP BY topic
), applications AS (
  SELECT DISTINCT `group` FROM consumer_groups WHERE protocol = 'stream' OR kind LIKE 'Streams%'
  UNION SELECT DISTINCT `group` FROM consumer_offsets WHERE streams_metadata IS NOT NULL
), named AS (
  SELECT c.topic, max_by(g.`group`, length(g.`group`)) AS application
  FROM counted c JOIN applications g ON substring(c.topic, 1, length(g.`group`) + 1) = g.`group` || '-'
  GROUP BY c.topic
)
SELECT n.application, substring(c.topic, length(n.application) + 2, length(c.topic) - length(n.application) - 11), c.topic, s.f.kind,
  s.f.certainty, c.partitions, c.records, c.keys, c.deleted_keys, CAST(c.bytes AS BIGINT), c.oldest, c.newest
FROM counted c LEFT JOIN said s ON s.topic = c.topic LEFT JOIN named n ON n.topic = c.topic
