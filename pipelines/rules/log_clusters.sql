-- Which copy of each internal topic belongs to a log, where a lake has those of several clusters: the one in the same log
-- directory, or in one that has a topic of the same id, else the only one. Copies with the same topic id are replicas of one
-- topic. Without one, and for `__cluster_metadata`, whose id is the same in all clusters, log directories that have no topic
-- in common are taken for clusters
-- Columns: those of a log, then
--   internal_topic string: Name of the internal topic
--   cluster string: Topic id of the internal topic, else the log directory of its copy, of several the first; null where several could be meant
WITH folders AS (
  SELECT DISTINCT topic, partition, partition_dir, CASE WHEN topic <> '__cluster_metadata' THEN topic_id END AS topic_id,
    regexp_replace(partition_dir, '/[^/]*$', '') AS log_dir
  FROM segments
), placed AS (
  SELECT topic, partition, partition_dir, topic_id, min(first_dir) OVER (PARTITION BY log_dir) AS log_dir
  FROM (SELECT *, CASE WHEN topic_id IS NULL THEN log_dir ELSE min(log_dir) OVER (PARTITION BY topic_id) END AS first_dir
    FROM folders)
), copies AS (
  SELECT topic AS internal_topic, log_dir, coalesce(min(topic_id), log_dir) AS cluster
  FROM placed
  WHERE topic IN $INTERNAL_TOPICS
  GROUP BY topic, log_dir
), named AS (
  SELECT internal_topic, count(DISTINCT cluster) AS clusters, min(cluster) AS cluster FROM copies GROUP BY internal_topic
)
SELECT DISTINCT p.topic, p.partition, p.partition_dir, n.internal_topic,
  coalesce(c.cluster, CASE WHEN n.clusters = 1 THEN n.cluster END) AS cluster
FROM placed p CROSS JOIN named n
LEFT JOIN copies c ON c.internal_topic = n.internal_topic AND c.log_dir = p.log_dir
