-- Not beside damage, which damaged_bytes counts; not beside a wrong base offset, which metadata_contradictions counts;
-- not in compacted logs
WITH followed AS (
  SELECT *, lag(misplaced) OVER (PARTITION BY log, stretch ORDER BY file, position) AS misplaced_before FROM sound
)
SELECT file, base_offset - last_before - 1 AS amount, 'position ' || position || ': base offset ' || base_offset
  || ' follows last offset ' || last_before AS detail
FROM followed
WHERE base_offset > last_before + 1 AND damages = damages_before AND NOT misplaced AND NOT misplaced_before
  AND log NOT IN (FROM compacted)
