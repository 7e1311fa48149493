-- Within one epoch of one producer; a sequence goes on at 0 after 2147483647. Not across damage, not in compacted logs
WITH followed AS (
  SELECT *, lag(last_sequence) OVER producer AS sequence_before, lag(damages) OVER producer AS damages_then
  FROM sound WHERE NOT is_control AND producer_id >= 0 AND base_sequence >= 0
  WINDOW producer AS (PARTITION BY log, stretch, producer_id, producer_epoch ORDER BY file, position)
)
SELECT file, 1 AS amount, printf('position %d: producer %d, epoch %d: sequence %d follows %d', position,
  producer_id, producer_epoch, base_sequence, sequence_before) AS detail
FROM followed
WHERE base_sequence <> (CAST(sequence_before AS BIGINT) + 1) % 2147483648 AND damages = damages_then
  AND log NOT IN (FROM compacted)
