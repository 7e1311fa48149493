-- The rows of `records` with the folder of their log and the offset in their file's name: all of them, also control
-- records and records of transactions that did not commit
-- Columns: those of records, then
--   partition_dir, file_base_offset: as in published_batches
SELECT r.*, substring(r.segment, 1, length(r.segment) - 25) AS partition_dir,
  CAST(substring(r.segment, length(r.segment) - 23, 20) AS BIGINT) AS file_base_offset
FROM records r
