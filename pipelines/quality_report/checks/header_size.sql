-- warning, max, 8192 bytes: Bytes of headers a record, on average of a batch
SELECT file, header_bytes / record_count AS amount,
  printf('position %d: %d bytes of headers in %d record%s', position, header_bytes, record_count,
    CASE WHEN record_count = 1 THEN '' ELSE 's' END) AS detail
FROM sound WHERE record_count > 0 AND header_bytes > 0
