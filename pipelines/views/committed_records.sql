-- The records that a READ_COMMITTED consumer reads: no control records, no records of transactions that were
-- aborted or whose outcome can't be known, none at or after the last stable offset of the log
WITH current_transactions AS (
  SELECT t.*
  FROM transactions t JOIN (
    SELECT topic, partition, partition_dir, max(transactions_generation) AS generation
    FROM segments GROUP BY topic, partition, partition_dir
  ) l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
    AND l.generation = t.generation
), hidden AS (
  SELECT topic, partition, partition_dir, producer_id, first_offset,
    coalesce(marker_offset, last_offset) AS last_offset
  FROM current_transactions
  WHERE first_offset IS NOT NULL AND outcome <> 'committed' AND NOT holds_last_stable_offset
), held AS (
  SELECT topic, partition, partition_dir, min(first_offset) AS last_stable_offset
  FROM current_transactions WHERE holds_last_stable_offset GROUP BY topic, partition, partition_dir
)
SELECT /*+ BROADCAST(s), BROADCAST(hidden), BROADCAST(held) */ r.*
FROM records r
JOIN segments s ON s.topic = r.topic AND s.partition = r.partition AND s.segment = r.segment
  AND s.generation = r.generation AND r.batch_position < s.decoded_bytes
ANTI JOIN hidden ON hidden.topic = r.topic AND hidden.partition = r.partition
  AND hidden.partition_dir = s.partition_dir AND hidden.producer_id = r.producer_id AND r.is_transactional
  AND r.offset BETWEEN hidden.first_offset AND hidden.last_offset
ANTI JOIN held ON held.topic = r.topic AND held.partition = r.partition
  AND held.partition_dir = s.partition_dir AND r.offset >= held.last_stable_offset
WHERE NOT r.is_control
