SELECT file, tail_bytes AS amount, printf(CASE WHEN tail = 'torn' THEN 'position %d: an incomplete batch of %d bytes'
  ELSE 'position %d: %d bytes of zeros, and no batch in the log' END, decoded_bytes, tail_bytes) AS detail
FROM log_segments
WHERE tail = 'torn' OR (tail = 'zeros' AND log NOT IN (SELECT log FROM log_segments WHERE batches > 0))
