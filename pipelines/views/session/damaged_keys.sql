-- Keys that can still be read in damaged bytes, each with the sound versions of it before and after. A checksum proves none
-- of these bytes: a key that sound records of the log have too is right, another one may be damaged itself. Bytes of which
-- nothing can be read, and segments that are missing, may have cost other keys
-- Columns: those of a segment, then
--   position bigint: First damaged byte
--   offset bigint: Offset of the record, as far as it can be read
--   key binary: The key
--   is_tombstone boolean: The record deletes the key
--   is_known_key boolean: A committed record of the log has the same key
--   offset_before bigint: Offset of the last committed record of the key before the damage; null without one
--   offset_after bigint: Offset of the first committed record of the key after the damage; null without one
WITH read AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, explode(kafka_unproven_records(content)) AS record
  FROM published_quarantine
), named AS (
  SELECT topic, partition, partition_dir, segment, file_base_offset, position, record.offset AS offset, record.key AS key,
    record.is_tombstone AS is_tombstone
  FROM read WHERE record.key IS NOT NULL
), sound AS (
  SELECT c.topic, c.partition, c.segment, c.batch_position, c.offset, c.key
  FROM committed_records c SEMI JOIN named k ON k.topic = c.topic AND k.partition = c.partition AND k.key = c.key
), placed AS (
  SELECT topic, partition, substring(segment, 1, length(segment) - 25) AS partition_dir,
    CAST(substring(segment, length(segment) - 23, 20) AS BIGINT) AS file_base_offset, batch_position, offset, key
  FROM sound
)
SELECT n.topic, n.partition, n.partition_dir, n.segment, n.position, n.offset, n.key, n.is_tombstone,
  count(s.offset) > 0 AS is_known_key,
  max(CASE WHEN s.file_base_offset < n.file_base_offset
    OR (s.file_base_offset = n.file_base_offset AND s.batch_position < n.position) THEN s.offset END) AS offset_before,
  min(CASE WHEN s.file_base_offset > n.file_base_offset
    OR (s.file_base_offset = n.file_base_offset AND s.batch_position > n.position) THEN s.offset END) AS offset_after
FROM named n LEFT JOIN placed s ON s.topic = n.topic AND s.partition = n.partition AND s.partition_dir = n.partition_dir
  AND s.key = n.key
GROUP BY n.topic, n.partition, n.partition_dir, n.segment, n.position, n.offset, n.key, n.is_tombstone
