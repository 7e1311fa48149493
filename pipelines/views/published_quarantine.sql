-- The rows of `quarantine` that the ledger names, with the folder of their log
-- Columns: those of quarantine, then
--   partition_dir string: Canonical URI of the partition folder
--   file_base_offset bigint: Base offset in the segment's file name
SELECT q.*, s.partition_dir, s.file_base_offset
FROM quarantine q JOIN segments s ON s.topic = q.topic AND s.partition = q.partition AND s.segment = q.segment
  AND s.generation = q.generation AND q.position < s.decoded_bytes
