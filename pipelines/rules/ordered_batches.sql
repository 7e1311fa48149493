-- The sound batches of each log in the order of their offsets, each with the offsets before it that no batch has, and
-- with what lies there. Misplaced batches are left out; a segment that is left out counts as one batch. The last row of
-- each log is its end
-- Columns: those of a log, then
--   segment string: Segment of the batch; null for the end of the log
--   segment_before string: Segment of the batch before; null for the first
--   file_base_offset bigint: Base offset in the name of its file; 9223372036854775807 for the end
--   first_offset bigint: The offset after the highest one before; the base offset of the first file for the first; null after 9223372036854775807
--   next_offset bigint: Its base offset: where it is above first_offset, the offsets between are missing; null for the end
--   damaged_ranges bigint: Damaged ranges between the batch before and this one
--   damaged_bytes bigint: Their bytes
--   misplaced_batches bigint: Batches between them whose base offset, which no checksum covers, is wrong: their records are there, under other offsets
--   goes_back boolean: The batch lies in front of the one before, in the files: one of both has a wrong base offset
--   follows_retention boolean: Retention may have deleted segments between the batch before and this one before a run saw them
--   is_confirmed boolean: A batch or a file after it confirms its base offset; false for the last batch of the last file
--   is_compacted boolean: The log shows what only the log cleaner leaves: fewer records than offsets, a delete horizon, or offsets missing between batches of a segment without damage there, which what follows confirms; or the topic is one that brokers compact
--   is_hole boolean: Offsets are missing before it; or damage, or batches with a wrong base offset, lie before the end
--   is_end boolean: The end of the log
--   last_offset bigint: Its last offset; null for the end
--   record_count int: Its records; null for a segment that is left out, and for the end
--   control_type string: Type of its control record; null without one
--   is_control boolean: Whether it is a control batch; null as record_count is
WITH events AS (
  SELECT b.topic, b.partition, b.partition_dir, b.segment, b.file_base_offset, b.position, b.base_offset, b.last_offset,
    b.is_misplaced, b.status = 'ok' AND (b.delete_horizon_ms IS NOT NULL
      OR CASE WHEN b.base_offset >= 0 THEN b.last_offset - b.base_offset >= b.record_count ELSE false END) AS is_cleaned,
    CAST(NULL AS BIGINT) AS damaged_bytes, false AS is_end,
    b.file_base_offset AS first_file, b.file_base_offset AS last_file, b.retentions, b.record_count, b.control_type, b.is_control
  FROM sound_batches b
  UNION ALL
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, NULL, NULL, false, false, size_bytes, false,
    file_base_offset, file_base_offset, NULL, NULL, NULL, NULL
  FROM published_quarantine
  UNION ALL
  SELECT topic, partition, partition_dir, segment, file_base_offset, 0, file_base_offset, next_file_base_offset - 1, false, false,
    NULL, false, file_base_offset, file_base_offset, retentions, NULL, NULL, NULL
  FROM log_stretches WHERE left_out < 0
  UNION ALL
  SELECT topic, partition, partition_dir, NULL, 9223372036854775807, 9223372036854775807, NULL, NULL, false, false, NULL, true,
    min(file_base_offset), max(file_base_offset), NULL, NULL, NULL, NULL
  FROM segments GROUP BY topic, partition, partition_dir
), counted AS (
  SELECT *, min(first_file) OVER whole AS log_start, max(last_file) OVER whole AS log_last_file,
    max(CASE WHEN is_cleaned THEN 1 ELSE 0 END) OVER whole AS has_cleaned,
    count(damaged_bytes) OVER until_it AS ranges_until,
    coalesce(sum(damaged_bytes) OVER until_it, 0) AS bytes_until,
    count(CASE WHEN is_misplaced THEN 1 END) OVER until_it AS misplaced_until
  FROM events
  WINDOW whole AS (PARTITION BY topic, partition, partition_dir),
    until_it AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
), numbered AS (
  SELECT *, row_number() OVER (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset, position) AS number
  FROM counted WHERE damaged_bytes IS NULL AND NOT is_misplaced
), followed AS (
  SELECT *, lag(segment) OVER log AS segment_before,
    coalesce(retentions > lag(retentions) OVER log, false) AS follows_retention, coalesce(lag(number) OVER log, 0) AS number_before,
    NOT (coalesce(lead(is_end) OVER log, true) AND file_base_offset = log_last_file) AS is_confirmed,
    max(last_offset) OVER before_it AS last_before, coalesce(max(ranges_until) OVER before_it, 0) AS ranges_before,
    coalesce(max(bytes_until) OVER before_it, 0) AS bytes_before,
    coalesce(max(misplaced_until) OVER before_it, 0) AS misplaced_before
  FROM numbered
  WINDOW log AS (PARTITION BY topic, partition, partition_dir
      ORDER BY is_end, base_offset, last_offset, file_base_offset, position),
    before_it AS (PARTITION BY topic, partition, partition_dir
      ORDER BY is_end, base_offset, last_offset, file_base_offset, position
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), stepped AS (
  SELECT *, CASE WHEN last_before IS NULL THEN log_start
      WHEN last_before < 9223372036854775807 THEN last_before + 1 END AS first_offset,
    greatest(ranges_until - ranges_before, 0) AS damaged_ranges,
    CAST(greatest(bytes_until - bytes_before, 0) AS BIGINT) AS damaged_bytes_before,
    greatest(misplaced_until - misplaced_before, 0)
      + CASE WHEN is_end THEN 0 ELSE greatest(number - number_before - 1, 0) END AS misplaced_batches
  FROM followed
), judged AS (
  SELECT *, has_cleaned = 1 OR topic IN ('__consumer_offsets', '__transaction_state')
    OR coalesce(base_offset > greatest(first_offset, file_base_offset) AND damaged_ranges = 0 AND misplaced_batches = 0
      AND number > number_before AND is_confirmed, false) AS shows_compaction
  FROM stepped
)
SELECT topic, partition, partition_dir, segment, segment_before, file_base_offset, first_offset, base_offset AS next_offset,
  damaged_ranges, damaged_bytes_before AS damaged_bytes, misplaced_batches, number < number_before AS goes_back,
  follows_retention, is_confirmed,
  max(CASE WHEN shows_compaction THEN 1 ELSE 0 END) OVER (PARTITION BY topic, partition, partition_dir) = 1 AS is_compacted,
  coalesce(base_offset > first_offset, false) OR (is_end AND damaged_ranges + misplaced_batches > 0) AS is_hole, is_end, last_offset, record_count, control_type, is_control
FROM judged
