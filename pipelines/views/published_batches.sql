-- The rows of `batches` with the folder of their log and the offset in their file's name
-- Columns: those of batches, then
--   partition_dir string: Canonical URI of the partition folder
--   file_base_offset bigint: Base offset in the segment's file name
SELECT b.*, substring(b.segment, 1, length(b.segment) - 25) AS partition_dir,
  CAST(substring(b.segment, length(b.segment) - 23, 20) AS BIGINT) AS file_base_offset
FROM batches b
