SELECT file, tail_bytes AS amount, printf('position %d: an incomplete batch of %d bytes', decoded_bytes, tail_bytes)
  AS detail
FROM log_segments WHERE tail = 'torn'
