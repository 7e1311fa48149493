SELECT file, 1 AS amount, printf('position %d: %s', position, error) AS detail
FROM log_batches WHERE status = 'suspect'
