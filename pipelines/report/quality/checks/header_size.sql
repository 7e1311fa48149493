SELECT file, header_bytes / record_count AS amount,
  printf('position %d: %d bytes of headers in %d records', position, header_bytes, record_count) AS detail
FROM sound WHERE record_count > 0 AND header_bytes > 0
