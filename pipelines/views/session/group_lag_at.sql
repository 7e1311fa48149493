-- What a group had committed at a time, and how far behind the end of each log it was then. In a lake with the logs of
-- several clusters, a group of one name is another group in each. A lake without `__consumer_offsets` has no row
-- Parameters:
--   wanted_group string: Group id
--   at_time timestamp: The time
-- Columns:
--   topic string: Topic of the committed offset
--   partition int: Its partition
--   committed_offset bigint: The last offset that the group had committed by then
--   commit_timestamp timestamp: When it was committed
--   end_offset bigint: Offset after the last record of the cluster's logs with a timestamp up to then; null without one
--   lag bigint: end_offset - committed_offset, at least 0; null without an end_offset
--   cluster string: The cluster of the group and of the logs (`log_clusters`): topic id of `__consumer_offsets`, else the log directory of its copy
WITH commits AS (
  SELECT c.cluster, c.topic, c.partition, c.committed_offset, c.commit_timestamp,
    row_number() OVER (PARTITION BY c.cluster, c.topic, c.partition ORDER BY c.record_offset DESC, c.segment) AS age
  FROM consumer_offsets c
  WHERE c.`group` = wanted_group AND c.record_timestamp <= at_time AND c.is_read
), held AS (
  SELECT * FROM commits WHERE age = 1 AND committed_offset IS NOT NULL
), ends AS (
  SELECT l.cluster, r.topic, r.partition, CAST(least(CAST(max(r.offset) AS DECIMAL(38, 0)) + 1, 9223372036854775807) AS BIGINT) AS end_offset
  FROM published_records r JOIN log_clusters l ON l.topic = r.topic AND l.partition = r.partition
    AND l.partition_dir = r.partition_dir AND l.internal_topic = '__consumer_offsets'
  WHERE r.timestamp <= at_time AND r.topic IN (SELECT topic FROM held)
  GROUP BY l.cluster, r.topic, r.partition
)
SELECT h.topic, h.partition, h.committed_offset, h.commit_timestamp, e.end_offset,
  CASE WHEN e.end_offset IS NOT NULL THEN CAST(least(greatest(
    CAST(e.end_offset AS DECIMAL(38, 0)) - h.committed_offset, 0), 9223372036854775807) AS BIGINT) END AS lag, h.cluster
FROM held h LEFT JOIN ends e ON e.cluster = h.cluster AND e.topic = h.topic AND e.partition = h.partition
