-- error, sum, 0 bytes: Bytes in quarantine
SELECT file, size_bytes AS amount, printf('position %d: %d byte%s, %s', position, size_bytes,
  CASE WHEN size_bytes = 1 THEN '' ELSE 's' END, reason) AS detail
FROM log_damage
