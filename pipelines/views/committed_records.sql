-- The records that a READ_COMMITTED consumer reads: no control records, no records of transactions that were
-- aborted or whose outcome can't be known, none at or after the last stable offset of the log
-- Columns: those of records
WITH held AS (
  SELECT topic, partition, partition_dir, min(first_offset) AS last_stable_offset
  FROM current_transactions WHERE holds_last_stable_offset GROUP BY topic, partition, partition_dir
), short AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 8
), long AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 20
)
SELECT /*+ BROADCAST(s), BROADCAST(short), BROADCAST(long), BROADCAST(held) */ r.*
FROM records r
JOIN segments s ON s.topic = r.topic AND s.partition = r.partition AND s.segment = r.segment
  AND s.generation = r.generation AND r.batch_position < s.decoded_bytes
ANTI JOIN short ON short.topic = r.topic AND short.partition = r.partition
  AND short.partition_dir = s.partition_dir AND short.producer_id = r.producer_id AND r.is_transactional
  AND short.slot = shiftright(r.offset, 8) AND r.offset BETWEEN short.first_offset AND short.last_offset
ANTI JOIN long ON long.topic = r.topic AND long.partition = r.partition
  AND long.partition_dir = s.partition_dir AND long.producer_id = r.producer_id AND r.is_transactional
  AND long.slot = shiftright(r.offset, 20) AND r.offset BETWEEN long.first_offset AND long.last_offset
ANTI JOIN held ON held.topic = r.topic AND held.partition = r.partition
  AND held.partition_dir = s.partition_dir AND r.offset >= held.last_stable_offset
WHERE NOT r.is_control
