-- Committed records with key, value and headers as text where their bytes are UTF-8, in addition to the exact bytes. Records of
-- aborted transactions, from the first open one on, and below the log start are not here: topics.records less committed_records
-- Columns:
--   topic, partition, offset, timestamp: as in committed_records
--   key_text string: The key as text; null where there is none, or its bytes are not UTF-8
--   value_text string: The value as text; null where there is none, or its bytes are not UTF-8
--   key_format string: What the key is, as in payload_profile; null for none, and in a catalog
--   value_format string: What the value is; null for none, and in a catalog
--   key_schema_id int: Id of the key's schema; null without one, and in a catalog
--   value_schema_id int: Id of the value's schema; null without one, and in a catalog
--   headers_text map<string,string>: The last value of each header key as text; null where it is null or not UTF-8
--   key, value, headers, timestampType, producer_id, size_bytes, segment: as in committed_records
WITH looked AS (
  -- null payloads are not passed to Python
  SELECT r.*, CASE WHEN r.key IS NOT NULL THEN kafka_payload(r.topic, 'key', r.key, r.headers) END AS of_key,
    CASE WHEN r.value IS NOT NULL THEN kafka_payload(r.topic, 'value', r.value, r.headers) END AS of_value
  FROM committed_records r
)
SELECT topic, partition, offset, timestamp,
  try_validate_utf8(key) AS key_text, try_validate_utf8(value) AS value_text,
  of_key.format AS key_format, of_value.format AS value_format,
  of_key.schema_id AS key_schema_id, of_value.schema_id AS value_schema_id,
  CASE WHEN size(headers) = 1 -- the same in less time
    THEN map_from_arrays(array(try_element_at(headers, 1).key), array(try_validate_utf8(try_element_at(headers, 1).value)))
  WHEN headers IS NOT NULL THEN map_from_arrays(
    sort_array(array_distinct(transform(headers, h -> h.key))),
    transform(sort_array(array_distinct(transform(headers, h -> h.key))), name ->
      try_validate_utf8(try_element_at(filter(headers, h -> h.key = name), -1).value))
  ) END AS headers_text,
  key, value, headers, timestampType, producer_id, size_bytes, segment
FROM looked
