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
), placed AS (
  SELECT *, lag(last_offset) OVER log AS last_before, lead(base_offset) OVER log AS base_after
  FROM counted WHERE status IS NOT NULL
  WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position)
), joined AS (
  SELECT /*+ BROADCAST(s, f) */ p.*, p.damaged_ranges, p.last_before, p.base_after, s.stretch, s.retentions,
    f.kind IS NOT NULL AS is_misplaced
  FROM placed p JOIN log_stretches s ON s.topic = p.topic AND s.partition = p.partition AND s.segment = p.segment
  LEFT JOIN offset_findings f ON f.topic = p.topic AND f.partition = p.partition AND f.segment = p.segment
    AND f.position = p.position AND f.kind = 'wrong_base_offset'
)
SELECT j.*, stretch, retentions, damaged_ranges, last_before, base_after, is_misplaced FROM joined j
