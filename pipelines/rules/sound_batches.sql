-- The batches that count (status ok or suspect), in the order of the files, with what their neighbours show. The base
-- offset of a batch lies outside its checksum: is_misplaced says that the name of the file, or the batches before
-- and after it, contradict it
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   segment string: Canonical URI of the segment file
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
--   stretch bigint: Stretch of its segment (log_stretches)
--   damaged_ranges bigint: Damaged ranges of the log before it: between two batches with the same number nothing is damaged
--   last_before bigint: Last offset of the batch before; null for the first of the log
--   base_after bigint: Base offset of the batch after; null for the last
--   is_misplaced boolean: The base offset is wrong: outside those of its file's name and the next file's; that of the file's name, but not in its first batch; not between the batches before and after, though they leave room; or, in the last batch, not after the one before
WITH events AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, magic, size_bytes, base_offset,
    last_offset, record_count, compression, timestampType, base_timestamp_ms, max_timestamp_ms, first_timestamp_ms,
    delete_horizon_ms, leader_epoch, producer_id, producer_epoch, base_sequence, last_sequence, is_transactional,
    is_control, control_type, payload_bytes, uncompressed_bytes, header_bytes, status, error
  FROM counted_batches
  UNION ALL
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM published_quarantine
), counted AS (
  SELECT *, count(CASE WHEN status IS NULL THEN 1 END) OVER (
    PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS damaged_ranges
  FROM events
), neighbours AS (
  SELECT *, lag(last_offset) OVER log AS last_before, lead(base_offset) OVER log AS base_after,
    coalesce(lag(last_offset) OVER log, file_base_offset - 1) AS end_before,
    coalesce(lag(file_base_offset) OVER log = file_base_offset, false) AS is_later,
    -- offsets of its records less one; both may be of any size
    CASE WHEN base_offset >= 0 OR last_offset < 0 THEN last_offset - base_offset ELSE 0 END AS span
  FROM counted WHERE status IS NOT NULL
  WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position)
), judged AS (
  SELECT /*+ BROADCAST(s) */ n.*, s.stretch,
    n.base_offset < n.file_base_offset OR (n.is_later AND n.base_offset = n.file_base_offset)
      OR coalesce(n.last_offset >= s.next_file_base_offset, false) AS is_outside_file,
    coalesce(CASE WHEN end_before < -1 OR base_after <= end_before OR base_offset = n.file_base_offset THEN false
      WHEN base_offset > end_before AND last_offset < base_after THEN false
      ELSE base_after - 1 - end_before > span END, false) AS is_outside_neighbours
  FROM neighbours n JOIN log_stretches s ON s.topic = n.topic AND s.partition = n.partition AND s.segment = n.segment
)
SELECT topic, partition, partition_dir, segment, file_base_offset, position, magic, size_bytes, base_offset, last_offset,
  record_count, compression, timestampType, base_timestamp_ms, max_timestamp_ms, first_timestamp_ms,
  delete_horizon_ms, leader_epoch, producer_id, producer_epoch, base_sequence, last_sequence, is_transactional,
  is_control, control_type, payload_bytes, uncompressed_bytes, header_bytes, status, error, stretch, damaged_ranges,
  last_before, base_after,
  -- a neighbour that is wrong by itself, or contradicts its own neighbours, proves nothing
  is_outside_file OR (NOT coalesce(lag(is_outside_file OR is_outside_neighbours) OVER log, false)
    AND CASE WHEN base_after IS NULL THEN coalesce(base_offset <= lag(base_offset) OVER log, false) ELSE is_outside_neighbours
      AND NOT coalesce(lead(is_outside_file OR is_outside_neighbours) OVER log, false) END) AS is_misplaced
FROM judged
WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position)
