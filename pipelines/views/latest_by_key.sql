-- The last committed record of every key, as compaction would keep it; without tombstones and null keys
-- Columns: those of records
SELECT key, value, topic, partition, offset, timestamp, timestampType, headers, magic, timestamp_ms, segment,
  batch_position, sequence, producer_id, producer_epoch, leader_epoch, is_transactional, is_control,
  control_type, size_bytes
FROM (
  SELECT *, row_number() OVER (PARTITION BY topic, partition, key ORDER BY offset DESC, segment) AS age
  FROM committed_records WHERE key IS NOT NULL
)
WHERE age = 1 AND value IS NOT NULL
