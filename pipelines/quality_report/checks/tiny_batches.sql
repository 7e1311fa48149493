-- warning, share, 0.2 share: Share of disk space taken by batch headers. High means that batches are too small
-- 61: the header of a batch of magic 2
SELECT file, 61 AS amount, size_bytes AS whole,
  printf('position %d: %d record%s in a batch of %d bytes', position, record_count,
    CASE WHEN record_count = 1 THEN '' ELSE 's' END, size_bytes) AS detail
FROM sound WHERE magic = 2 AND NOT is_control
