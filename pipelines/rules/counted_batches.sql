-- The batches that count (status ok or suspect), as they are stored. `sound_batches` has what their neighbours show
-- Columns: those of a segment, then
--   file_base_offset, position, magic, size_bytes: as in published_batches
--   base_offset bigint: First offset as stored; the last one where it can't be read
--   last_offset bigint: Last offset as stored; not below base_offset
--   record_count, compression, timestampType, base_timestamp_ms, max_timestamp_ms: as in published_batches
--   first_timestamp_ms bigint: Timestamp of its first record: the max timestamp with log append time (KIP-32); null where the header does not have it: a delete horizon lies in its place (KIP-534), or the batch is a wrapper of magic 1
--   delete_horizon_ms, leader_epoch, producer_id, producer_epoch, base_sequence, last_sequence: as in published_batches
--   is_transactional, is_control, control_type, payload_bytes, uncompressed_bytes, header_bytes: as in published_batches
--   status string: ok or suspect
--   error string: Null for ok; else expected and found, with the position
SELECT topic, partition, partition_dir, segment, file_base_offset, position, magic, size_bytes,
  coalesce(base_offset, last_offset) AS base_offset, greatest(base_offset, last_offset) AS last_offset,
  record_count, compression, timestampType, base_timestamp_ms, max_timestamp_ms,
  CASE WHEN timestampType = 1 THEN max_timestamp_ms
    WHEN delete_horizon_ms IS NULL AND (magic <> 1 OR compression = 'none') THEN base_timestamp_ms END AS first_timestamp_ms,
  delete_horizon_ms, leader_epoch, producer_id, producer_epoch, base_sequence, last_sequence, is_transactional,
  is_control, control_type, payload_bytes, uncompressed_bytes, header_bytes, status, error
FROM published_batches WHERE status IN ('ok', 'suspect')
