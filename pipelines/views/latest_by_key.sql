-- The last committed record of every key, as compaction would keep it; without tombstones and null keys. Keys are told apart
-- by their bytes, as Kafka does
-- Columns: those of records
SELECT r.* FROM (
  SELECT *, row_number() OVER (PARTITION BY topic, partition, key ORDER BY offset DESC, segment) AS age
  FROM committed_records WHERE key IS NOT NULL
) r
WHERE age = 1 AND value IS NOT NULL
