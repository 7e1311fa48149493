-- Which copy of each internal topic belongs to a log, where a lake has those of several clusters: the one in the same log
-- directory, else the only one. Copies with the same topic id are replicas of one topic. Without one, and for
-- `__cluster_metadata`, whose id is the same in all clusters, each log directory is taken for a cluster
-- Columns: those of a log, then
--   internal_topic string: Name of the internal topic
--   cluster string: Topic id of the internal topic, else the log directory of its copy; null where several could be meant
WITH placed AS (
  SELECT DISTINCT topic, partition, partition_dir, topic_id, regexp_replace(partition_dir, '/[^/]*$', '') AS log_dir
  FROM segments
), copies AS (
  SELECT topic AS internal_topic, log_dir,
    coalesce(min(CASE WHEN topic <> '__cluster_metadata' THEN topic_id END), log_dir) AS cluster
  FROM placed
  WHERE topic IN ('__consumer_offsets', '__transaction_state', '__share_group_state', '__cluster_metadata',
    '__remote_log_metadata')
  GROUP BY topic, log_dir
), named AS (
  SELECT internal_topic, count(DISTINCT cluster) AS clusters, min(cluster) AS cluster FROM copies GROUP BY internal_topic
)
SELECT DISTINCT p.topic, p.partition, p.partition_dir, n.internal_topic,
  coalesce(c.cluster, CASE WHEN n.clusters = 1 THEN n.cluster END) AS cluster
FROM placed p CROSS JOIN named n
LEFT JOIN copies c ON c.internal_topic = n.internal_topic AND c.log_dir = p.log_dir
