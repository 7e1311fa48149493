-- Offsets that a consumer does not get, each range with its cause
-- Columns: those of a log, then
--   first_offset bigint: First offset of the range
--   last_offset bigint: Last offset of the range; null for damage after the last sound batch
--   offsets decimal(20,0): Number of offsets in the range that have no record for the consumer; null where last_offset is. Decimal, so that no sum of it overflows
--   place string: between batches; inside a batch: the batch covers more offsets than it has records; not delivered: the records are there, and consumers do not get them
--   cause string: damage, wrong_base_offset, compaction, retention, missing_segment, or unknown (before a last batch, whose base offset nothing confirms); for READ_COMMITTED alone transaction_marker, control_record, aborted_, unknown_ or open_transaction
--   segment string: Segment of the batch after the gap, or of the batch; null after the last batch and for transactions
WITH halves AS (
  SELECT 0 AS half UNION ALL SELECT 1
), holes AS (
  SELECT h.*, p.half, h.damaged_ranges = 0 AND h.misplaced_batches = 0 AND NOT h.goes_back AS is_clear
  FROM offset_holes h CROSS JOIN halves p
), gaps AS (
  -- the first half of a hole lies before the name of the file behind it, the second in that file
  SELECT topic, partition, partition_dir, segment,
    CASE WHEN half = 1 THEN greatest(first_offset, file_base_offset) ELSE first_offset END AS first_offset,
    CASE WHEN is_clear AND half = 0 THEN least(next_offset, file_base_offset) ELSE next_offset END AS end_offset,
    CASE WHEN damaged_ranges > 0 THEN 'damage' WHEN NOT is_clear THEN 'wrong_base_offset'
      WHEN half = 1 AND (is_confirmed OR is_compacted) THEN 'compaction' WHEN half = 1 THEN 'unknown'
      WHEN follows_retention THEN 'retention' WHEN is_compacted THEN 'compaction' ELSE 'missing_segment' END AS cause
  FROM holes
  WHERE CASE WHEN NOT is_clear THEN half = 0 WHEN half = 0 THEN first_offset < file_base_offset
    ELSE next_offset > file_base_offset END
), batch_gaps AS (
  SELECT b.*, p.half FROM sound_batches b CROSS JOIN halves p
  WHERE NOT b.is_misplaced AND CASE WHEN p.half = 1 THEN b.is_control AND b.record_count > 0
    WHEN b.base_offset >= 0 THEN b.last_offset - b.base_offset >= b.record_count ELSE false END
)
SELECT topic, partition, partition_dir, first_offset, end_offset - 1 AS last_offset,
  CAST(CAST(end_offset AS DECIMAL(20, 0)) - first_offset AS DECIMAL(20, 0)) AS offsets, 'between batches' AS place, cause,
  segment
FROM gaps
UNION ALL
SELECT topic, partition, partition_dir, base_offset, last_offset,
  CAST(CASE WHEN half = 1 THEN record_count
    ELSE CAST(last_offset AS DECIMAL(20, 0)) - base_offset + 1 - record_count END AS DECIMAL(20, 0)),
  CASE WHEN half = 1 THEN 'not delivered' ELSE 'inside a batch' END,
  CASE WHEN half = 0 THEN 'compaction' WHEN control_type IN ('ABORT', 'COMMIT') THEN 'transaction_marker'
    ELSE 'control_record' END, segment
FROM batch_gaps
UNION ALL
SELECT topic, partition, partition_dir, first_offset, last_offset, CAST(records AS DECIMAL(20, 0)), 'not delivered',
  CASE WHEN outcome = 'aborted' THEN 'aborted_transaction' WHEN holds_last_stable_offset THEN 'open_transaction'
    ELSE 'unknown_transaction' END, NULL
FROM current_transactions
WHERE first_offset IS NOT NULL AND outcome <> 'committed'
