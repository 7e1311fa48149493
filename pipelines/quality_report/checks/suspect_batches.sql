-- warning, sum, 0 batch: Batches whose header contradicts their content
SELECT file, 1 AS amount, printf('position %d: %s', position, error) AS detail
FROM log_batches WHERE status = 'suspect'
