-- Ranges of offsets between two sound batches of a log that no sound batch has, and damage after the last sound batch.
-- `offset_gaps` tells their causes
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   segment string: Segment of the batch after the hole; null after the last batch
--   segment_before string: Segment of the batch before it; null before the first batch
--   file_base_offset bigint: Base offset in the name of the segment after the hole
--   first_offset bigint: First offset of the hole
--   next_offset bigint: Base offset of the batch after it; null after the last batch
--   damaged_ranges bigint: Damaged ranges in the hole
--   damaged_bytes bigint: Their bytes
--   goes_back boolean: The batch after the hole is followed by lower offsets: its base offset, which no checksum covers, is wrong
--   is_compacted boolean: The log shows that the log cleaner removed records: a sound batch has fewer records than offsets, or offsets are missing between two batches of a segment though nothing is damaged there
WITH events AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, base_offset, last_offset,
    last_offset - base_offset + 1 > record_count AS has_hole, CAST(NULL AS BIGINT) AS damaged_bytes
  FROM published_batches WHERE status IN ('ok', 'suspect')
  UNION ALL
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, NULL, NULL, false, size_bytes
  FROM published_quarantine
  UNION ALL
  -- a segment that is left out: as far as is known, it has the offsets up to the next one's name
  SELECT topic, partition, partition_dir, segment, file_base_offset, 0, file_base_offset, next_base_offset - 1, false, NULL
  FROM (
    SELECT *, lead(file_base_offset) OVER (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset)
      AS next_base_offset
    FROM segments
  ) WHERE left_out < 0
  UNION ALL
  -- the end of each log
  SELECT topic, partition, partition_dir, NULL, 9223372036854775807, 0, NULL, NULL, false, NULL
  FROM segments GROUP BY topic, partition, partition_dir
), counted AS (
  SELECT *, max(last_offset) OVER before_it AS last_before, min(file_base_offset) OVER whole AS log_start,
    bool_or(has_hole) OVER whole AS has_holes_inside,
    sum(damaged_bytes) OVER until_it AS damaged_until, count(damaged_bytes) OVER until_it AS ranges_until
  FROM events
  WINDOW whole AS (PARTITION BY topic, partition, partition_dir),
    until_it AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
    before_it AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), sound AS (
  SELECT *, coalesce(lead(base_offset) OVER log <= base_offset, false) AS goes_back, lag(segment) OVER log AS segment_before, coalesce(last_before + 1, log_start) AS first_offset,
    ranges_until - coalesce(lag(ranges_until) OVER log, 0) AS damaged_ranges,
    coalesce(damaged_until, 0) - coalesce(lag(damaged_until) OVER log, 0) AS damaged_bytes_before
  FROM counted
  WHERE damaged_bytes IS NULL
  WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position)
)
SELECT topic, partition, partition_dir, segment, segment_before, file_base_offset, first_offset, base_offset AS next_offset,
  damaged_ranges, damaged_bytes_before AS damaged_bytes, goes_back, has_holes_inside
    OR bool_or(damaged_ranges = 0 AND NOT goes_back AND base_offset > greatest(first_offset, file_base_offset))
      OVER (PARTITION BY topic, partition, partition_dir) AS is_compacted
FROM sound
WHERE base_offset > first_offset OR (base_offset IS NULL AND damaged_ranges > 0)
