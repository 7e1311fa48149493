SELECT file, size_bytes AS amount, printf('position %d: %d bytes, %s', position, size_bytes, reason) AS detail
FROM log_damage
