-- The rows of `quarantine` with the folder of their log and the offset in their file's name
-- Columns: those of quarantine, then
--   partition_dir, file_base_offset: as in published_batches
SELECT q.*, substring(q.segment, 1, length(q.segment) - 25) AS partition_dir,
  CAST(substring(q.segment, length(q.segment) - 23, 20) AS BIGINT) AS file_base_offset
FROM quarantine q
