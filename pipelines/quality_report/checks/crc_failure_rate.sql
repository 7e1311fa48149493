-- error, share, 0 share: Batches whose checksum is wrong, of all batches
-- A wrong checksum of a message inside a wrapper counts too
SELECT file, CAST(NOT crc_ok OR status = 'corrupt' AS INTEGER) AS amount, 1 AS whole,
  CASE WHEN NOT crc_ok THEN printf('position %d: stored 0x%08x, computed 0x%08x', position, crc_stored, crc_computed)
    WHEN status = 'corrupt' THEN 'position ' || position || ': ' || error END AS detail
FROM log_batches
