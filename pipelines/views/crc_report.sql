-- Checksum failures and damaged bytes by partition and magic; damage without a readable header has magic null
WITH published AS (
  SELECT topic, partition, segment, generation, decoded_bytes FROM segments
), counted AS (
  SELECT b.topic, b.partition, b.magic, b.segment, b.position, b.size_bytes, b.crc_ok
  FROM batches b JOIN published s ON s.topic = b.topic AND s.partition = b.partition
    AND s.segment = b.segment AND s.generation = b.generation AND b.position < s.decoded_bytes
), damaged AS (
  SELECT q.topic, q.partition, q.segment, q.position, q.size_bytes
  FROM quarantine q JOIN published s ON s.topic = q.topic AND s.partition = q.partition
    AND s.segment = q.segment AND s.generation = q.generation AND q.position < s.decoded_bytes
)
SELECT topic, partition, magic, CAST(sum(batches) AS BIGINT) AS batches, CAST(sum(bytes) AS BIGINT) AS bytes,
  CAST(sum(failures) AS BIGINT) AS crc_failures,
  CAST(sum(failures) AS DOUBLE) / nullif(sum(batches), 0) AS crc_failure_rate,
  CAST(sum(damaged) AS BIGINT) AS damaged_bytes
FROM (
  -- The bytes of a damaged batch are those in quarantine, because its length field may be wrong
  SELECT b.topic, b.partition, b.magic, 1 AS batches, coalesce(d.size_bytes, b.size_bytes) AS bytes,
    CASE WHEN b.crc_ok THEN 0 ELSE 1 END AS failures, coalesce(d.size_bytes, 0) AS damaged
  FROM counted b LEFT JOIN damaged d ON d.topic = b.topic AND d.partition = b.partition
    AND d.segment = b.segment AND d.position = b.position
  UNION ALL
  SELECT d.topic, d.partition, NULL, 0, 0, 0, d.size_bytes
  FROM damaged d ANTI JOIN counted b ON b.topic = d.topic AND b.partition = d.partition
    AND b.segment = d.segment AND b.position = d.position
)
GROUP BY topic, partition, magic
