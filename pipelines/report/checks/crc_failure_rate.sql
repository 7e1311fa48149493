SELECT file, CAST(NOT crc_ok AS INTEGER) AS amount, 1 AS whole,
  CASE WHEN NOT crc_ok THEN printf('position %d: stored 0x%08x, computed 0x%08x', position, crc_stored, crc_computed)
  END AS detail
FROM log_batches
