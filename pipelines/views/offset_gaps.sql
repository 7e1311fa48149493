-- Offsets that a consumer does not get, each range with its cause. A wrong_base_offset, which no checksum covers, is above
-- those behind it
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   first_offset bigint: First offset of the range
--   last_offset bigint: Last offset of the range; null for damage after the last sound batch
--   offsets bigint: Number of offsets in the range that have no record for the consumer; null where last_offset is
--   place string: between batches; inside a batch: the batch covers more offsets than it has records; not delivered: the records are there, and consumers do not get them
--   cause string: compaction; wrong_base_offset; missing_segment: before the start of a segment in a log without compaction; damage: see quarantine; transaction_marker, control_record; aborted_transaction, unknown_transaction, open_transaction: for READ_COMMITTED alone
SELECT topic, partition, partition_dir, first_offset, least(next_offset, file_base_offset) - 1 AS last_offset,
  least(next_offset, file_base_offset) - first_offset AS offsets, 'between batches' AS place,
  CASE WHEN goes_back THEN 'wrong_base_offset' WHEN is_compacted THEN 'compaction' ELSE 'missing_segment' END AS cause
FROM offset_holes
WHERE damaged_ranges = 0 AND first_offset < file_base_offset
UNION ALL
SELECT topic, partition, partition_dir, greatest(first_offset, file_base_offset), next_offset - 1,
  next_offset - greatest(first_offset, file_base_offset), 'between batches',
  CASE WHEN goes_back THEN 'wrong_base_offset' ELSE 'compaction' END
FROM offset_holes
WHERE damaged_ranges = 0 AND next_offset > file_base_offset
UNION ALL
SELECT topic, partition, partition_dir, first_offset, next_offset - 1, next_offset - first_offset, 'between batches', 'damage'
FROM offset_holes
WHERE damaged_ranges > 0
UNION ALL
SELECT topic, partition, partition_dir, base_offset, last_offset, last_offset - base_offset + 1 - record_count,
  'inside a batch', 'compaction'
FROM published_batches
WHERE status IN ('ok', 'suspect') AND last_offset - base_offset + 1 > record_count
UNION ALL
SELECT topic, partition, partition_dir, base_offset, last_offset, CAST(record_count AS BIGINT), 'not delivered',
  CASE WHEN control_type IN ('ABORT', 'COMMIT') THEN 'transaction_marker' ELSE 'control_record' END
FROM published_batches
WHERE status IN ('ok', 'suspect') AND is_control AND record_count > 0
UNION ALL
SELECT topic, partition, partition_dir, first_offset, last_offset, records, 'not delivered',
  CASE WHEN outcome = 'aborted' THEN 'aborted_transaction' WHEN holds_last_stable_offset THEN 'open_transaction'
    ELSE 'unknown_transaction' END
FROM current_transactions
WHERE first_offset IS NOT NULL AND outcome <> 'committed'
