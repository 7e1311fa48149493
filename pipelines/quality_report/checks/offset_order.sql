-- error, sum, 0 batch: Batches that begin at or before the last offset
SELECT file, 1 AS amount, 'position ' || position || ': base offset ' || base_offset || ' follows last offset '
  || last_before AS detail
FROM sound WHERE base_offset <= last_before
