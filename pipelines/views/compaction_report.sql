-- What compaction would do to each log, by its committed records: versions of keys, bytes that it would free, tombstones.
-- Bytes are those of records (size_bytes), before compression
-- Parameters:
--   at_ms bigint DEFAULT NULL: the time, in ms since 1970, that is compared with delete horizons; now if it is not given
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   records bigint: Committed records
--   record_bytes bigint: Their bytes
--   null_key_records bigint: Records without a key: a compacted topic refuses them, and where they are on disk the cleaner removes them
--   keys bigint: Different keys
--   versions_per_key double: Records with a key for each key
--   most_versions bigint: Records of the key that has the most
--   superseded_records bigint: Records that a later one of the same key replaces
--   superseded_bytes bigint: Their bytes: what compaction would free
--   tombstones bigint: Keys whose last record is a tombstone
--   expired_tombstones bigint: Those whose batch has a delete horizon in the past: the next cleaning removes them
--   first_dirty_offset bigint: The first offset whose key came before: the cleaner has not cleaned past it; null where no key repeats
WITH narrow AS (
  -- long keys as their SHA-256: only whether keys are equal counts, and neither keys nor values are sorted
  SELECT c.topic, c.partition, s.partition_dir, c.segment, c.batch_position, c.offset, c.size_bytes,
    CASE WHEN octet_length(c.key) < 32 THEN c.key ELSE unhex(sha2(c.key, 256)) END AS key, c.value IS NULL AS is_tombstone
  FROM committed_records c JOIN segments s ON s.topic = c.topic AND s.partition = c.partition AND s.segment = c.segment
), versions AS (
  SELECT *, lead(offset) OVER same_key IS NOT NULL AS is_superseded, row_number() OVER same_key AS version
  FROM narrow
  WINDOW same_key AS (PARTITION BY topic, partition, partition_dir, key ORDER BY offset, segment)
), expired AS (
  SELECT topic, partition, segment, position
  FROM published_batches WHERE delete_horizon_ms < coalesce(at_ms, unix_millis(current_timestamp))
)
SELECT v.topic, v.partition, v.partition_dir, count(*) AS records, sum(v.size_bytes) AS record_bytes,
  count_if(v.key IS NULL) AS null_key_records, count_if(v.key IS NOT NULL AND v.version = 1) AS keys,
  count(v.key) / nullif(CAST(count_if(v.key IS NOT NULL AND v.version = 1) AS DOUBLE), 0) AS versions_per_key,
  CAST(coalesce(max(CASE WHEN v.key IS NOT NULL THEN v.version END), 0) AS BIGINT) AS most_versions,
  count_if(v.key IS NOT NULL AND v.is_superseded) AS superseded_records,
  coalesce(sum(CASE WHEN v.key IS NOT NULL AND v.is_superseded THEN v.size_bytes END), 0) AS superseded_bytes,
  count_if(v.key IS NOT NULL AND v.is_tombstone AND NOT v.is_superseded) AS tombstones,
  count_if(v.key IS NOT NULL AND v.is_tombstone AND NOT v.is_superseded AND e.position IS NOT NULL) AS expired_tombstones,
  min(CASE WHEN v.key IS NOT NULL AND v.version > 1 THEN v.offset END) AS first_dirty_offset
FROM versions v
LEFT JOIN expired e ON e.topic = v.topic AND e.partition = v.partition AND e.segment = v.segment
  AND e.position = v.batch_position
GROUP BY v.topic, v.partition, v.partition_dir
