-- The rows of `batches` that the ledger names, with the folder of their log: what a run is committing, or left
-- behind when it was killed, is not among them
-- Columns: those of batches, then
--   partition_dir string: Canonical URI of the partition folder
--   file_base_offset bigint: Base offset in the segment's file name
SELECT b.*, s.partition_dir, s.file_base_offset
FROM batches b JOIN segments s ON s.topic = b.topic AND s.partition = b.partition AND s.segment = b.segment
  AND s.generation = b.generation AND b.position < s.decoded_bytes
