-- The rows of `records` that the ledger names, with the folder of their log: all of them, also control records and
-- records of transactions that did not commit
-- Columns: those of records, then
--   partition_dir string: Canonical URI of the partition folder
--   file_base_offset bigint: Base offset in the segment's file name
SELECT r.*, s.partition_dir, s.file_base_offset
FROM records r JOIN segments s ON s.topic = r.topic AND s.partition = r.partition AND s.segment = r.segment
  AND s.generation = r.generation AND r.batch_position < s.decoded_bytes
