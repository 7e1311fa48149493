-- error, sum, 0 batch: Batches whose offsets, leader epoch or magic contradict their neighbours: no checksum covers them
-- Kafka's checksum of magic 2 begins after base offset, length, leader epoch and magic. A batch is named if its
-- neighbours contradict it and not each other; the file's name says where its first offset may be
WITH judged AS (
  SELECT b.file, b.position,
    CASE
      WHEN misplaced AND b.base_offset < s.file_base_offset
        THEN 'base offset ' || b.base_offset || ' is below that of the file, ' || s.file_base_offset
      WHEN misplaced AND b.base_offset = s.file_base_offset
        THEN 'base offset ' || b.base_offset || ' matches the file name, but another batch is first'
      WHEN misplaced AND b.last_offset >= s.next_file_base_offset
        THEN 'offsets ' || b.base_offset || ' to ' || b.last_offset || ' are not below that of the next file, '
          || s.next_file_base_offset
      WHEN misplaced AND base_after IS NULL
        THEN 'base offset ' || b.base_offset || ' of the last batch is not after offset ' || last_before
      WHEN misplaced
        THEN 'offsets ' || b.base_offset || ' to ' || b.last_offset || ' are not between '
          || coalesce(last_before, s.file_base_offset - 1) || ' and '
          || base_after
      WHEN e.before IS NOT NULL
        THEN 'leader epoch ' || leader_epoch || ' is not between ' || e.before || ' and ' || e.after
    END AS what
  FROM sound b JOIN log_segments s USING (file) LEFT JOIN wrong_epochs e USING (file, position)
), magics AS (
  SELECT file, position, magic, status, lag(magic) OVER log AS before, lead(magic) OVER log AS after
  FROM log_batches WHERE log IN (SELECT log FROM log_batches WHERE status = 'corrupt')
  WINDOW log AS (PARTITION BY log, stretch ORDER BY file, position)
)
SELECT file, 1 AS amount, 'position ' || position || ': ' || what AS detail FROM judged WHERE what IS NOT NULL
UNION ALL
SELECT file, 1, printf('position %d: magic %d between batches of magic %d', position, magic, before)
FROM magics WHERE status = 'corrupt' AND before = after AND magic <> before
UNION ALL
SELECT file, 1, printf('position %d: %s', position, detail) FROM log_damage WHERE reason = 'unknown_magic'
