-- Dead letters: records that Kafka Connect or Kafka Streams could not process, by the headers that say why, each with the record
-- that failed where the lake has it. The headers of all records are read for it
-- Columns:
--   topic, partition, offset, timestamp: as in records
--   writer string: connect or streams
--   source_topic string: Topic of the record that failed; null where the header is missing
--   source_partition int: Its partition
--   source_offset bigint: Its offset
--   connector string: Connector; null for Streams
--   task int: Number of its task
--   stage string: What failed: KEY_CONVERTER, VALUE_CONVERTER, TRANSFORMATION, TASK_PUT, ...
--   class_name string: Class that failed; null for Streams
--   exception string: Class of the exception
--   message string: Its text
--   stacktrace string: Its stack trace
--   key, value: as in records
--   is_source_there boolean: The lake has the record that failed
--   source_timestamp timestamp: Its timestamp
--   source_key binary: Its key
--   source_value binary: Its value
--   is_same boolean: Key and value are those of the record that failed; null where the lake does not have it
--   segment, batch_position: as in records
WITH letters AS (
  SELECT topic, partition, offset, timestamp, key, value, headers, segment, batch_position,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.topic' OR h.key = '__streams.errors.topic'), -1) AS of_topic,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.partition' OR h.key = '__streams.errors.partition'), -1) AS of_partition,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.offset' OR h.key = '__streams.errors.offset'), -1) AS of_offset,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.connector.name'), -1) AS of_connector,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.task.id'), -1) AS of_task,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.stage'), -1) AS of_stage,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.class.name'), -1) AS of_class,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.exception.class.name' OR h.key = '__streams.errors.exception'), -1) AS of_exception,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.exception.message' OR h.key = '__streams.errors.message'), -1) AS of_message,
    try_element_at(filter(headers, h -> h.key = '__connect.errors.exception.stacktrace' OR h.key = '__streams.errors.stacktrace'), -1) AS of_trace
  FROM published_records WHERE headers IS NOT NULL AND NOT is_control
), read AS (
  SELECT topic, partition, offset, timestamp, key, value, segment, batch_position,
    CASE WHEN of_connector IS NULL THEN 'streams' ELSE 'connect' END AS writer, try_validate_utf8(of_topic.value) AS source_topic,
    try_cast(try_validate_utf8(of_partition.value) AS INT) AS source_partition,
    try_cast(try_validate_utf8(of_offset.value) AS BIGINT) AS source_offset, try_validate_utf8(of_connector.value) AS connector,
    try_cast(try_validate_utf8(of_task.value) AS INT) AS task, try_validate_utf8(of_stage.value) AS stage,
    try_validate_utf8(of_class.value) AS class_name, try_validate_utf8(of_exception.value) AS exception,
    try_validate_utf8(of_message.value) AS message, try_validate_utf8(of_trace.value) AS stacktrace
  FROM letters WHERE of_exception IS NOT NULL
), places AS (
  SELECT DISTINCT source_topic, source_partition, source_offset FROM read
), failed AS (
  SELECT r.topic, r.partition, r.offset, r.timestamp, r.key, r.value,
    row_number() OVER (PARTITION BY r.topic, r.partition, r.offset ORDER BY r.segment, r.batch_position) AS copy
  FROM published_records r JOIN places p ON p.source_topic = r.topic AND p.source_partition = r.partition AND p.source_offset = r.offset
  WHERE NOT r.is_control
)
SELECT l.topic, l.partition, l.offset, l.timestamp, l.writer, l.source_topic, l.source_partition, l.source_offset, l.connector, l.task, l.stage,
  l.class_name, l.exception, l.message, l.stacktrace, l.key, l.value, f.topic IS NOT NULL AS is_source_there,
  f.timestamp AS source_timestamp, f.key AS source_key, f.value AS source_value,
  CASE WHEN f.topic IS NOT NULL THEN coalesce(hex(l.key), '-') = coalesce(hex(f.key), '-') AND coalesce(hex(l.value), '-') = coalesce(hex(f.value), '-') END AS is_same,
  l.segment, l.batch_position
FROM read l LEFT JOIN failed f ON f.copy = 1 AND f.topic = l.source_topic AND f.partition = l.source_partition AND f.offset = l.source_offset
