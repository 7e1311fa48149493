-- The contents of a store of Kafka Streams, by its changelog: the last record of each key, as it stood at the end or at a moment. Any
-- compacted topic is read the same way. The store itself may hold less: windows and versions that it no longer keeps are in the
-- changelog until the log cleaner or retention removes them
-- Parameters:
--   wanted_topic string: The changelog's topic
--   at string DEFAULT '': The last offset, or the last time (2026-11-24T10:00:00Z), that counts; empty for all
--   is_versioned boolean DEFAULT false: The store is a versioned one, which the log does not say
--   window_ms bigint DEFAULT 0: Size of the windows, which the log does not say; 0 if it is not known
-- Columns:
--   partition int: Partition: the number of the task
--   key string: The key as JSON, of windowed stores with its window
--   value string: The value as JSON; null where it cannot be decoded
--   timestamp timestamp: The store's timestamp of the entry
--   valid_to timestamp: Of a version the timestamp of the next one; null for the newest, and where is_versioned is false
--   window_start_ms bigint: Where its window begins; null without one
--   window_end_ms bigint: Where it ends; null without one, and where window_ms is not given and needed
--   offset bigint: Offset of its record
--   kind string: What the topic is taken for (docs/applications.md); null where that is not certain
--   raw_key binary: The key's bytes
--   raw_value binary: The value's bytes
WITH held AS (
  SELECT topic, partition, offset, timestamp, key, value, segment,
    row_number() OVER (PARTITION BY partition, offset ORDER BY segment) AS copy
  FROM committed_records WHERE topic = wanted_topic AND key IS NOT NULL
), said AS (
  SELECT topic, kafka_topic_format(topic, array_agg((key, value, headers))) AS f
  FROM topic_samples WHERE topic = wanted_topic GROUP BY topic
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY partition, hex(key), CASE WHEN is_versioned THEN timestamp END ORDER BY offset DESC) AS age
  FROM held
  WHERE copy = 1 AND CASE WHEN at = '' THEN true
    WHEN try_cast(at AS BIGINT) IS NOT NULL THEN offset <= try_cast(at AS BIGINT) ELSE timestamp <= CAST(at AS TIMESTAMP) END
), living AS (
  SELECT topic, partition, offset, timestamp, key, value,
    CASE WHEN is_versioned THEN lead(timestamp) OVER (PARTITION BY partition, hex(key) ORDER BY timestamp, offset) END AS valid_to
  FROM ranked WHERE age = 1
), decoded AS (
  SELECT l.*, s.f.kind AS kind, kafka_payload_as(s.f.key, l.topic, 'key', l.key) AS key_json,
    kafka_payload_as(s.f.value, l.topic, 'value', l.value) AS value_json
  FROM living l LEFT JOIN said s ON s.topic = l.topic WHERE l.value IS NOT NULL
), windowed AS (
  SELECT *, CASE WHEN kind LIKE '%window%' OR kind LIKE 'session%' OR kind = 'suppress-changelog'
    THEN try_cast(coalesce(get_json_object(key_json, '$.start'), get_json_object(key_json, '$.key.start')) AS BIGINT) END AS window_start,
    CASE WHEN kind LIKE '%window%' OR kind LIKE 'session%'
    THEN try_cast(get_json_object(key_json, '$.end') AS BIGINT) END AS window_end
  FROM decoded
)
SELECT partition, key_json, value_json, timestamp, valid_to, window_start,
  coalesce(window_end, CASE WHEN window_ms > 0 THEN window_start + window_ms END), offset, kind, key, value
FROM windowed
