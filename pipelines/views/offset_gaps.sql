-- Offsets that a consumer does not get, each range with its cause
-- Columns: those of a log, then
--   first_offset bigint: First offset of the range
--   last_offset bigint: Last offset of the range; null for damage after the last sound batch
--   offsets decimal(20,0): Number of offsets in the range that have no record for the consumer; null where last_offset is. Decimal, so that no sum of it overflows
--   place string: between batches; inside a batch: the batch covers more offsets than it has records; not delivered: the records are there, and consumers do not get them
--   cause string: damage, wrong_base_offset, compaction, retention, missing_segment, or unknown (before a last batch, whose base offset nothing confirms); for READ_COMMITTED alone transaction_marker, control_record, aborted_, unknown_ or open_transaction
--   segment string: Segment of the batch after the gap, or of the batch; null after the last batch and for transactions
WITH kinds AS (
  SELECT 'before the file' AS kind UNION ALL SELECT 'in the file' UNION ALL SELECT 'inside a batch' UNION ALL SELECT 'not delivered'
), placed AS (
  -- of each batch four ranges: in the hole before it up to the name of its file, and after that; its own, twice
  SELECT b.*, k.kind, b.damaged_ranges = 0 AND b.misplaced_batches = 0 AND NOT b.goes_back AS is_clear
  FROM ordered_batches b CROSS JOIN kinds k
), gaps AS (
  SELECT *,
    CASE kind WHEN 'before the file' THEN first_offset WHEN 'in the file' THEN greatest(first_offset, file_base_offset)
      ELSE next_offset END AS first_missing,
    CASE WHEN kind IN ('inside a batch', 'not delivered') THEN last_offset
      WHEN is_clear AND kind = 'before the file' THEN least(next_offset, file_base_offset) - 1 ELSE next_offset - 1 END AS last_missing
  FROM placed
  WHERE CASE kind WHEN 'not delivered' THEN is_control AND record_count > 0
    WHEN 'inside a batch' THEN CASE WHEN next_offset >= 0 THEN last_offset - next_offset >= record_count ELSE false END
    WHEN 'before the file' THEN is_hole AND (NOT is_clear OR first_offset < file_base_offset)
    ELSE is_hole AND is_clear AND next_offset > file_base_offset END
)
SELECT topic, partition, partition_dir, first_missing AS first_offset, last_missing AS last_offset,
  CAST(CASE WHEN kind = 'not delivered' THEN record_count ELSE CAST(last_missing AS DECIMAL(20, 0)) - first_missing + 1
    - CASE WHEN kind = 'inside a batch' THEN record_count ELSE 0 END END AS DECIMAL(20, 0)) AS offsets,
  CASE WHEN kind IN ('inside a batch', 'not delivered') THEN kind ELSE 'between batches' END AS place,
  CASE WHEN kind = 'inside a batch' THEN 'compaction'
    WHEN kind = 'not delivered' THEN CASE WHEN control_type IN ('ABORT', 'COMMIT') THEN 'transaction_marker' ELSE 'control_record' END
    WHEN damaged_ranges > 0 THEN 'damage' WHEN NOT is_clear THEN 'wrong_base_offset'
    WHEN kind = 'in the file' THEN CASE WHEN is_confirmed OR is_compacted THEN 'compaction' ELSE 'unknown' END
    WHEN follows_retention THEN 'retention' WHEN is_compacted THEN 'compaction' ELSE 'missing_segment' END AS cause,
  segment
FROM gaps
UNION ALL
SELECT topic, partition, partition_dir, first_offset, last_offset, CAST(records AS DECIMAL(20, 0)), 'not delivered',
  CASE WHEN outcome = 'aborted' THEN 'aborted_transaction' WHEN holds_last_stable_offset THEN 'open_transaction'
    ELSE 'unknown_transaction' END, NULL
FROM current_transactions
WHERE first_offset IS NOT NULL AND outcome <> 'committed'
