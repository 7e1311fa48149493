-- Offsets that a consumer does not get, each range with its cause
-- Columns: those of a log, then
--   first_offset bigint: First offset of the range
--   last_offset bigint: Last offset of the range; null for damage after the last sound batch
--   offsets decimal(20,0): Offsets in the range without a record for the consumer; null where last_offset is
--   place string: between batches; inside a batch; not delivered: the records are there, and consumers do not get them
--   cause string: The cause: docs/views.md explains each
--   segment string: Segment of the batch after the gap, or of the batch; null after the last batch and for transactions
WITH gaps AS (
  -- a hole without damage ends where the next file begins by its name, and goes on in it for another reason
  SELECT topic, partition, partition_dir, segment_after AS segment, first_offset,
    CASE WHEN cause_in_file IS NULL OR cause IN ('damage', 'wrong_base_offset') THEN next_offset ELSE file_base_offset END AS end_offset, cause
  FROM offset_findings WHERE kind = 'hole' AND cause IS NOT NULL
  UNION ALL
  SELECT topic, partition, partition_dir, segment_after, greatest(first_offset, file_base_offset), next_offset, cause_in_file
  FROM offset_findings WHERE kind = 'hole' AND cause_in_file IS NOT NULL
  UNION ALL
  SELECT topic, partition, partition_dir, NULL, first_offset, next_offset, 'unread' FROM offset_findings WHERE kind = 'unread'
), batches_of_logs AS (
  SELECT b.* FROM counted_batches b
  ANTI JOIN (SELECT segment, position FROM offset_findings WHERE kind = 'wrong_base_offset') w
    ON w.segment = b.segment AND w.position = b.position
), after_open AS (
  -- data batches from the last stable offset on, and the ranges there of transactions without a commit
  SELECT b.topic, b.partition, b.partition_dir, b.segment, CASE WHEN b.is_transactional THEN b.producer_id ELSE -1 END AS producer_id,
    b.base_offset, b.last_offset, b.record_count, CAST(NULL AS BIGINT) AS undelivered_to
  FROM batches_of_logs b JOIN last_stable_offsets l ON l.topic = b.topic AND l.partition = b.partition AND l.partition_dir = b.partition_dir
  WHERE NOT b.is_control AND b.record_count > 0 AND b.base_offset >= l.last_stable_offset
  UNION ALL
  SELECT t.topic, t.partition, t.partition_dir, NULL, t.producer_id, t.first_offset, NULL, NULL, t.last_offset
  FROM current_transactions t JOIN last_stable_offsets l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
  WHERE t.outcome <> 'committed' AND t.last_offset >= l.last_stable_offset
), held_back AS (
  SELECT *, max(undelivered_to) OVER (PARTITION BY topic, partition, partition_dir, producer_id ORDER BY base_offset) AS reached
  FROM after_open
)
SELECT topic, partition, partition_dir, first_offset, end_offset - 1 AS last_offset,
  CAST(CAST(end_offset AS DECIMAL(20, 0)) - first_offset AS DECIMAL(20, 0)) AS offsets, 'between batches' AS place, cause, segment
FROM gaps
UNION ALL
SELECT topic, partition, partition_dir, base_offset, last_offset,
  CAST(CAST(last_offset AS DECIMAL(20, 0)) - base_offset + 1 - record_count AS DECIMAL(20, 0)), 'inside a batch', 'compaction', segment
FROM batches_of_logs
WHERE CASE WHEN base_offset >= 0 THEN last_offset - base_offset >= record_count ELSE false END
UNION ALL
SELECT topic, partition, partition_dir, base_offset, last_offset, CAST(record_count AS DECIMAL(20, 0)), 'not delivered',
  CASE WHEN control_type IN ('ABORT', 'COMMIT') THEN 'transaction_marker' ELSE 'control_record' END, segment
FROM batches_of_logs
WHERE is_control AND record_count > 0
UNION ALL
SELECT topic, partition, partition_dir, first_offset, last_offset, CAST(records AS DECIMAL(20, 0)), 'not delivered',
  CASE WHEN outcome = 'aborted' THEN 'aborted_transaction' WHEN holds_last_stable_offset THEN 'open_transaction'
    ELSE 'unknown_transaction' END, NULL
FROM current_transactions
WHERE first_offset IS NOT NULL AND outcome <> 'committed'
UNION ALL
SELECT topic, partition, partition_dir, base_offset, last_offset, CAST(record_count AS DECIMAL(20, 0)), 'not delivered',
  'after_open_transaction', segment
FROM held_back
WHERE record_count IS NOT NULL AND (reached IS NULL OR reached < base_offset)
