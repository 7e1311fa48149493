-- The first data records of each topic, by which its keys and values are recognised: as udfs.values.typed.sample takes them
-- Columns:
--   topic, key, value, headers: as in records
WITH placed AS (
  SELECT topic, key, value, headers, coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) AS payload_bytes,
    row_number() OVER (PARTITION BY topic ORDER BY partition, right(segment, 24), segment, batch_position, offset) AS place
  FROM records WHERE NOT is_control AND batch_position < $HEAD_BYTES
), summed AS (
  SELECT topic, key, value, headers,
    sum(payload_bytes) OVER (PARTITION BY topic ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
  FROM placed WHERE place <= $SAMPLED
)
SELECT topic, key, value, headers FROM summed WHERE coalesce(bytes_before, 0) < $MOST_BYTES
