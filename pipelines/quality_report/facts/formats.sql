-- Bytes by message format and codec, sound batches alone
SELECT magic, compression, CAST(count(*) AS BIGINT), CAST(sum(record_count) AS BIGINT), CAST(sum(size_bytes) AS BIGINT)
FROM sound GROUP BY magic, compression ORDER BY magic, compression
