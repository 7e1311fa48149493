-- The batches that count (status ok or suspect), in the order of the files, with what their neighbours show. The base
-- offset of a batch lies outside its checksum: is_misplaced says that the name of the file, or the batches before
-- and after it, contradict it
-- Columns: those of counted_batches, then
--   stretch, retentions: as in log_stretches
--   damaged_ranges bigint: Damaged ranges of the log before it: between two batches with the same number nothing is damaged
--   last_before bigint: Last offset of the batch before; null for the first of the log
--   base_after bigint: Base offset of the batch after; null for the last
--   is_misplaced boolean: The base offset is wrong: outside those of its file's name and the next file's; that of the file's name, but not in its first batch; not between the batches before and after, though they leave room; or, in the last batch, not after the one before
WITH events AS (
  SELECT c.* FROM counted_batches c
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
  SELECT /*+ BROADCAST(s) */ n.*, n.damaged_ranges, n.last_before, n.base_after, s.stretch, s.retentions,
    n.base_offset < n.file_base_offset OR (n.is_later AND n.base_offset = n.file_base_offset)
      OR coalesce(n.last_offset >= s.next_file_base_offset, false) AS is_outside_file,
    coalesce(CASE WHEN end_before < -1 OR base_after <= end_before OR base_offset = n.file_base_offset THEN false
      WHEN base_offset > end_before AND last_offset < base_after THEN false
      ELSE base_after - 1 - end_before > span END, false) AS is_outside_neighbours
  FROM neighbours n JOIN log_stretches s ON s.topic = n.topic AND s.partition = n.partition AND s.segment = n.segment
)
SELECT j.*, stretch, retentions, damaged_ranges, last_before, base_after,
  -- a neighbour that is wrong by itself, or contradicts its own neighbours, proves nothing
  is_outside_file OR (NOT coalesce(lag(is_outside_file OR is_outside_neighbours) OVER log, false)
    AND CASE WHEN base_after IS NULL THEN coalesce(base_offset <= lag(base_offset) OVER log, false) ELSE is_outside_neighbours
      AND NOT coalesce(lead(is_outside_file OR is_outside_neighbours) OVER log, false) END) AS is_misplaced
FROM judged j
WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position)
