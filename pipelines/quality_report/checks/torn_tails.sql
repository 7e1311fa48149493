-- warning, sum, 0 bytes: Bytes of incomplete last batches, and of logs of zeros alone
SELECT file, tail_bytes AS amount, printf(CASE WHEN tail = 'torn' THEN 'position %d: an incomplete batch of %d byte%s'
  ELSE 'position %d: %d byte%s of zeros, and no batch in the log' END, decoded_bytes, tail_bytes,
  CASE WHEN tail_bytes = 1 THEN '' ELSE 's' END) AS detail
FROM log_segments
WHERE tail = 'torn' OR (tail = 'zeros' AND log NOT IN (SELECT log FROM log_segments WHERE batches > 0))
