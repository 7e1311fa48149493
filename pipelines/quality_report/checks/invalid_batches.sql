-- error, sum, 0 batch: Batches with a right checksum that can't be decoded
-- Also a batch with a right checksum that wraps a message with a wrong one
SELECT file, 1 AS amount, printf('position %d: %s', position, error) AS detail
FROM log_batches WHERE crc_ok AND status IN ('corrupt', 'invalid', 'unsupported')
