-- The batches that count (status ok or suspect), as they are stored. `sound_batches` has what their neighbours show
-- Columns: those of a segment, then
--   file_base_offset bigint: Base offset in the file's name
--   position bigint: Byte where the batch starts in the segment
--   magic tinyint: Message format
--   size_bytes int: Size on disk
--   base_offset bigint: First offset as stored; the last one where it can't be read
--   last_offset bigint: Last offset as stored; not below base_offset
--   record_count int: Records decoded from it
--   compression string: Codec
--   timestampType int: 0 create time, 1 log append time, -1 none
--   base_timestamp_ms bigint: Base timestamp as stored
--   max_timestamp_ms bigint: Max timestamp as stored
--   first_timestamp_ms bigint: Timestamp of its first record: the max timestamp with log append time (KIP-32); null where the header does not have it: a delete horizon lies in its place (KIP-534), or the batch is a wrapper of magic 1
--   delete_horizon_ms bigint: Delete horizon; null without one
--   leader_epoch int: Partition leader epoch; -1 none
--   producer_id bigint: Producer id; -1 none
--   producer_epoch smallint: Producer epoch; -1 none
--   base_sequence int: Sequence of the first record; -1 none
--   last_sequence int: Sequence of the last record; -1 none
--   is_transactional boolean: Written in a transaction
--   is_control boolean: A control batch
--   control_type string: Its control type; null for data
--   payload_bytes bigint: Bytes of its records as stored
--   uncompressed_bytes bigint: The same, expanded
--   header_bytes bigint: Bytes of header keys and values
--   status string: ok or suspect
--   error string: Why it is suspect
SELECT topic, partition, partition_dir, segment, file_base_offset, position, magic, size_bytes,
  coalesce(base_offset, last_offset) AS base_offset, greatest(base_offset, last_offset) AS last_offset,
  record_count, compression, timestampType, base_timestamp_ms, max_timestamp_ms,
  CASE WHEN timestampType = 1 THEN max_timestamp_ms
    WHEN delete_horizon_ms IS NULL AND (magic <> 1 OR compression = 'none') THEN base_timestamp_ms END AS first_timestamp_ms,
  delete_horizon_ms, leader_epoch, producer_id, producer_epoch, base_sequence, last_sequence, is_transactional,
  is_control, control_type, payload_bytes, uncompressed_bytes, header_bytes, status, error
FROM published_batches WHERE status IN ('ok', 'suspect')
