-- Checksum failures and damaged bytes by partition and magic; damage without a readable header has magic null
-- Columns:
--   topic, partition: as in segments
--   magic tinyint: Message format; null for damaged bytes without a row in batches
--   batches bigint: Rows in batches
--   bytes bigint: Their bytes on disk
--   crc_failures bigint: Those with a wrong checksum: their own, or that of a message inside a wrapper
--   crc_failure_rate double: crc_failures / batches; null without batches
--   damaged_bytes bigint: Bytes in quarantine
SELECT topic, partition, magic, CAST(sum(batches) AS BIGINT) AS batches, CAST(sum(bytes) AS BIGINT) AS bytes,
  CAST(sum(failures) AS BIGINT) AS crc_failures,
  CAST(sum(failures) AS DOUBLE) / nullif(sum(batches), 0) AS crc_failure_rate,
  CAST(sum(damaged) AS BIGINT) AS damaged_bytes
FROM (
  -- The bytes of a damaged batch are those in quarantine, because its length field may be wrong
  SELECT b.topic, b.partition, b.magic, 1 AS batches, coalesce(d.size_bytes, b.size_bytes) AS bytes,
    CASE WHEN b.crc_ok AND b.status <> 'corrupt' THEN 0 ELSE 1 END AS failures, coalesce(d.size_bytes, 0) AS damaged
  FROM published_batches b LEFT JOIN published_quarantine d ON d.topic = b.topic AND d.partition = b.partition
    AND d.segment = b.segment AND d.position = b.position
  UNION ALL
  SELECT d.topic, d.partition, NULL, 0, 0, 0, d.size_bytes
  FROM published_quarantine d ANTI JOIN published_batches b ON b.topic = d.topic AND b.partition = d.partition
    AND b.segment = d.segment AND b.position = d.position
)
GROUP BY topic, partition, magic
