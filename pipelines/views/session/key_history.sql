-- The life of one key: each record of it that is on disk, who wrote it, in which transaction, with what outcome, and what
-- superseded it. Records that the log cleaner or retention removed, and those in damaged bytes (damaged_keys), are not here
-- Parameters:
--   wanted_topic string: Topic
--   wanted_key binary: The key
-- Columns: those of a log, then
--   offset, timestamp, value: as in published_records
--   is_tombstone boolean: The record deletes the key
--   producer_id, producer_epoch, sequence, leader_epoch: as in published_records
--   transaction_first_offset bigint: First offset of its transaction; null outside of one
--   outcome string: committed, aborted, open, or unknown: it ended, and its marker was not seen; null outside of a transaction
--   outcome_uncertain boolean: The marker may lie where it can't be seen; null outside of a transaction
--   marker_offset bigint: Offset of the marker that ended the transaction; null without one
--   transactional_id string: Transactional id of the producer, where `__transaction_state` has it (producer_states)
--   is_visible boolean: A READ_COMMITTED consumer gets it
--   superseded_by bigint: Offset of the next visible record of the key; null for the latest, and for what is not visible
--   segment, batch_position: as in published_records
WITH found AS (
  SELECT r.topic, r.partition, r.partition_dir, r.offset, r.timestamp, r.value, r.producer_id, r.producer_epoch, r.sequence,
    r.leader_epoch, r.is_transactional, r.segment, r.file_base_offset, r.batch_position, t.first_offset, t.marker_offset,
    t.outcome_uncertain, CASE WHEN NOT r.is_transactional THEN NULL
      WHEN t.outcome = 'open' AND NOT t.holds_last_stable_offset THEN 'unknown' ELSE coalesce(t.outcome, 'unknown') END AS outcome,
    coalesce(r.offset >= h.last_stable_offset, false) OR (b.is_cut AND r.offset < b.log_start_offset) AS is_held
  FROM published_records r
  LEFT JOIN current_transactions t ON t.topic = r.topic AND t.partition = r.partition AND t.partition_dir = r.partition_dir
    AND t.producer_id = r.producer_id AND t.producer_epoch = r.producer_epoch AND r.is_transactional
    AND r.offset BETWEEN t.first_offset AND t.last_offset
  LEFT JOIN last_stable_offsets h ON h.topic = r.topic AND h.partition = r.partition AND h.partition_dir = r.partition_dir
  JOIN log_starts b ON b.topic = r.topic AND b.partition = r.partition AND b.partition_dir = r.partition_dir
  WHERE r.topic = wanted_topic AND r.key = wanted_key AND NOT r.is_control
), judged AS (
  SELECT *, NOT is_held AND coalesce(outcome, 'committed') = 'committed' AS is_visible FROM found
)
SELECT j.topic, j.partition, j.partition_dir, j.offset, j.timestamp, j.value, j.value IS NULL AS is_tombstone, j.producer_id,
  j.producer_epoch, j.sequence, j.leader_epoch, j.first_offset AS transaction_first_offset, j.outcome, j.outcome_uncertain,
  j.marker_offset, p.transactional_id, j.is_visible,
  CASE WHEN j.is_visible THEN min(CASE WHEN j.is_visible THEN j.offset END) OVER (
    PARTITION BY j.topic, j.partition, j.partition_dir ORDER BY j.offset, j.file_base_offset, j.batch_position
    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) END AS superseded_by, j.segment, j.batch_position
FROM judged j
LEFT JOIN log_clusters l ON l.topic = j.topic AND l.partition = j.partition AND l.partition_dir = j.partition_dir
  AND l.internal_topic = '__transaction_state'
LEFT JOIN producer_states p ON p.cluster = l.cluster AND p.producer_id = j.producer_id
