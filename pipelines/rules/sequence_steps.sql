-- The sound data batches, each with the sequence number before it of its producer and epoch in the same stretch of the
-- log, in the order of the files. Kafka takes a batch whose base sequence is the one after the last
-- (ProducerAppendInfo.checkSequence); after 2147483647 comes 0
-- Columns: those of a segment, then
--   file_base_offset, position, producer_id, producer_epoch, base_sequence, last_sequence: as in sound_batches
--   sequence_before int: Last sequence of the batch before; null for the first, and without a producer id or sequence
--   step string: next: it follows; gap: sequence numbers are missing; reset: it begins at 0 again in the same epoch; duplicate: it is not above the one before; null without one before
--   missing_sequences bigint: Sequence numbers missing in a gap; else 0
--   cause string: Why the step is not next: damage between both batches; compaction, for a gap in a log that shows it; null for next, and where nothing known explains it
--   base_offset, last_offset, record_count, first_timestamp_ms, max_timestamp_ms, is_transactional: as in sound_batches
--   is_misplaced: as in sound_batches
WITH followed AS (
  SELECT *, lag(last_sequence) OVER producer AS last_sequence_before, lag(damaged_ranges) OVER producer AS damaged_then
  FROM sound_batches WHERE NOT is_control
  WINDOW producer AS (
    PARTITION BY topic, partition, partition_dir, stretch, producer_id, producer_epoch, producer_id >= 0 AND base_sequence >= 0
    ORDER BY file_base_offset, position)
), stepped AS (
  SELECT *, CASE WHEN producer_id >= 0 AND base_sequence >= 0 THEN last_sequence_before END AS sequence_before,
    (CAST(base_sequence AS BIGINT) - last_sequence_before - 1 + 4294967296) % 2147483648 AS ahead
  FROM followed
), judged AS (
  SELECT *, CASE WHEN sequence_before IS NULL THEN NULL WHEN ahead = 0 THEN 'next' WHEN base_sequence = 0 THEN 'reset'
    WHEN ahead < 1073741824 THEN 'gap' ELSE 'duplicate' END AS step
  FROM stepped
)
SELECT j.topic, j.partition, j.partition_dir, j.segment, j.file_base_offset, j.position, j.producer_id, j.producer_epoch,
  j.base_sequence, j.last_sequence, j.sequence_before, j.step, CASE WHEN j.step = 'gap' THEN j.ahead ELSE 0 END AS missing_sequences,
  CASE WHEN j.step = 'next' OR j.step IS NULL THEN NULL WHEN j.damaged_ranges > j.damaged_then THEN 'damage'
    WHEN j.step = 'gap' AND c.topic IS NOT NULL THEN 'compaction' END AS cause,
  j.base_offset, j.last_offset, j.record_count, j.first_timestamp_ms, j.max_timestamp_ms, j.is_transactional, j.is_misplaced
FROM judged j LEFT JOIN compacted_logs c ON c.topic = j.topic AND c.partition = j.partition
  AND c.partition_dir = j.partition_dir
