-- The records of Kafka's internal topics as a broker that loads them counts them: no control records, and of
-- transactions those that were committed; an open one does not hold back the records after it. It loads them from the log
-- start on
-- Columns: those of records, then
--   cluster string: The cluster that the record's copy belongs to (`log_clusters`)
WITH pending AS (
  SELECT topic, partition, partition_dir, producer_id, first_offset, last_offset
  FROM current_transactions
  WHERE first_offset IS NOT NULL AND outcome <> 'committed'
)
SELECT /*+ BROADCAST(pending) */ r.*, l.cluster
FROM published_records r
JOIN log_clusters l ON l.topic = r.topic AND l.partition = r.partition AND l.partition_dir = r.partition_dir
  AND l.internal_topic = r.topic
ANTI JOIN pending ON pending.topic = r.topic AND pending.partition = r.partition
  AND pending.partition_dir = r.partition_dir AND pending.producer_id = r.producer_id AND r.is_transactional
  AND r.offset BETWEEN pending.first_offset AND pending.last_offset
ANTI JOIN log_starts b ON b.topic = r.topic AND b.partition = r.partition AND b.partition_dir = r.partition_dir
  AND b.is_cut AND r.offset < b.log_start_offset
WHERE NOT r.is_control AND r.topic IN $INTERNAL_TOPICS
