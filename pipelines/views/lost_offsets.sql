-- Offsets that are lost: their bytes are damaged, a base offset is wrong, a segment is missing in the middle of a log, or
-- the log begins later or ends before than the broker's files say (`current_checkpoints`). A consumer that stops there goes on at
-- the next sound offset. One that follows a wrong base offset, which no checksum covers, gets its records with wrong
-- offsets, and skips those after it: seek to next_offset. Segments that are left out, and files
-- that could not be read, count as sound
-- Columns: those of a log, then
--   first_lost bigint: First lost offset
--   last_lost bigint: Last lost offset; null for damage after the last sound batch
--   max_records decimal(20,0): Upper bound of lost records; null where last_lost is. Decimal, so that no sum of it overflows
--   cause string: damage; wrong_base_offset: the records are there, under other offsets, and may be fewer; missing_segment; missing_end, missing_start: by the broker's files
--   is_certain boolean: Records were there; false where the cleaner, retention or a truncation may have removed them
--   damaged_ranges bigint: Damaged ranges there; 0 where something is missing
--   damaged_bytes bigint: Their bytes
--   next_offset bigint: The next sound offset, or that in the name of an empty last file; null where none follows
--   reset_command string: The command that moves a stopped consumer group there; null where no sound offset follows
WITH edges AS (
  SELECT partition_dir, topic, partition, least(min(file_base_offset), min(log_start_offset)) AS log_start
  FROM segments GROUP BY topic, partition, partition_dir
), noted AS (
  SELECT e.topic, e.partition, e.partition_dir, e.log_start, o.is_whole AS has_end, n.log_start_offset, n.recovery_point,
    n.high_watermark, n.named_end, o.end_offset AS log_end, greatest(o.end_offset, n.high_watermark) AS after_watermark,
    greatest(o.end_offset, n.high_watermark, n.named_end) AS known_end
  FROM edges e JOIN current_checkpoints n ON n.partition_dir = e.partition_dir
  JOIN log_ends o ON o.topic = e.topic AND o.partition = e.partition AND o.partition_dir = e.partition_dir
), lost AS (
  SELECT topic, partition, partition_dir, first_offset AS first_lost, next_offset AS end_offset, lost_cause AS cause, is_certain,
    damaged_ranges, damaged_bytes, next_offset
  FROM offset_findings WHERE lost_cause IS NOT NULL
  UNION ALL
  -- of each log four edges, so that what is known of it is worked out once
  SELECT n.topic, n.partition, n.partition_dir,
    CASE e.edge WHEN 'start' THEN n.log_start_offset WHEN 'high watermark' THEN n.log_end WHEN 'files' THEN n.after_watermark
      ELSE n.known_end END,
    CASE e.edge WHEN 'start' THEN n.log_start WHEN 'high watermark' THEN n.high_watermark WHEN 'files' THEN n.named_end
      ELSE n.recovery_point END,
    CASE e.edge WHEN 'start' THEN 'missing_start' ELSE 'missing_end' END, e.edge IN ('high watermark', 'files'), 0, 0,
    CASE e.edge WHEN 'start' THEN n.log_start END
  FROM noted n CROSS JOIN (SELECT 'start' AS edge UNION ALL SELECT 'high watermark' UNION ALL SELECT 'files'
    UNION ALL SELECT 'recovery point') e
  WHERE CASE e.edge WHEN 'start' THEN n.log_start_offset < n.log_start
    WHEN 'high watermark' THEN n.has_end AND n.high_watermark > n.log_end
    WHEN 'files' THEN n.has_end AND n.named_end > n.after_watermark
    ELSE n.has_end AND n.recovery_point > n.known_end END
)
SELECT topic, partition, partition_dir, first_lost, end_offset - 1 AS last_lost,
  CAST(CAST(end_offset AS DECIMAL(20, 0)) - first_lost AS DECIMAL(20, 0)) AS max_records,
  cause, is_certain, damaged_ranges, damaged_bytes, next_offset,
  -- pasted into a terminal, control characters act in spite of quotes
  CASE WHEN regexp_replace(topic, '[' || chr(92) || 'p{C}' || chr(92) || 'p{Zl}' || chr(92) || 'p{Zp}]', '') = topic
    THEN 'kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group GROUP --topic '''
    || replace(topic, '''', '''' || chr(92) || '''''') || ':' || partition || ''' --reset-offsets --to-offset ' || next_offset
    || ' --execute' END AS reset_command
FROM lost
