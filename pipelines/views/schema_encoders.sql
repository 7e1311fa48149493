-- The keysets with which Confluent's registry encrypts sensitive metadata of schemas, of its topic `_schema_encoders`: one a
-- tenant, encrypted by the registry's own secret. Each record, the last of a tenant too
-- Columns:
--   tenant string: Tenant; null where the key is no text
--   keyset binary: The encrypted keyset as stored; null of a tombstone
--   is_tombstone boolean: The record deletes the keyset
--   is_current boolean: The last record of the tenant in its copy of the topic
--   record_offset bigint: Offset of the record
--   record_timestamp timestamp: Its timestamp
--   segment string: Canonical URI of the segment file
SELECT try_validate_utf8(key) AS tenant, value AS keyset, value IS NULL AS is_tombstone,
  row_number() OVER (PARTITION BY partition_dir, key ORDER BY offset DESC, segment) = 1 AS is_current,
  offset AS record_offset, timestamp AS record_timestamp, segment
FROM published_records
WHERE topic = '_schema_encoders' AND NOT is_control
