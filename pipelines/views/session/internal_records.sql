-- The records of Kafka's internal topics as a broker that loads them counts them: no control records, and of
-- transactions those that were committed; an open one does not hold back the records behind it
-- Columns: those of records
WITH pending AS (
  SELECT t.topic, t.partition, t.partition_dir, t.producer_id, t.first_offset,
    coalesce(t.marker_offset, t.last_offset) AS last_offset
  FROM transactions t JOIN (
    SELECT topic, partition, partition_dir, max(transactions_generation) AS generation
    FROM segments GROUP BY topic, partition, partition_dir
  ) l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
    AND l.generation = t.generation
  WHERE t.first_offset IS NOT NULL AND t.outcome <> 'committed'
)
SELECT /*+ BROADCAST(s), BROADCAST(pending) */ r.*
FROM records r
JOIN segments s ON s.topic = r.topic AND s.partition = r.partition AND s.segment = r.segment
  AND s.generation = r.generation AND r.batch_position < s.decoded_bytes
ANTI JOIN pending ON pending.topic = r.topic AND pending.partition = r.partition
  AND pending.partition_dir = s.partition_dir AND pending.producer_id = r.producer_id AND r.is_transactional
  AND r.offset BETWEEN pending.first_offset AND pending.last_offset
WHERE NOT r.is_control AND r.topic IN ('__consumer_offsets', '__transaction_state', '__share_group_state',
  '__cluster_metadata', '__remote_log_metadata')
