-- 61: the header of a batch of magic 2
SELECT file, 61 AS amount, size_bytes AS whole,
  printf('position %d: %d records in a batch of %d bytes', position, record_count, size_bytes) AS detail
FROM sound WHERE magic = 2 AND NOT is_control
