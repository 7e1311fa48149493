-- Each topic in one row: messages, what became of the others, offsets, times, growth, keys, formats, and who reads it
-- Columns:
--   topic, partitions, folders: as in topics
--   messages bigint: Data records on the disk
--   committed bigint: Those that a READ_COMMITTED consumer gets
--   aborted bigint: Data records of aborted transactions
--   open bigint: Data records of transactions without an outcome
--   after_open bigint: Other data records after an open transaction, which READ_COMMITTED consumers get when it has ended
--   markers bigint: Control records: no messages, though each takes an offset
--   compacted_away decimal(38,0): Offsets that the log cleaner removed the records of
--   lost decimal(38,0): Offsets that are lost at most (`lost_offsets`); those after a damaged end are not counted
--   first_offset bigint: Lowest log start offset of its logs
--   last_offset bigint: Highest offset of its logs; null without a batch
--   offsets decimal(38,0): Offsets from each log's start to its end, together
--   first_timestamp, last_timestamp: as in topics
--   last_write timestamp: Latest modification of its segment files; of files that were copied without their times, when
--   bytes bigint: Bytes of its segments
--   bytes_by_day map<string,bigint>: Day in UTC, such as 2026-11-24 -> bytes of the batches with that max timestamp
--   keys bigint: Different keys; every record of the lake is read for them
--   null_keys bigint: Data records without a key
--   key_formats array<string>: What the keys of the last 100 offsets of each log are, as in payload_profile; null without keys
--   value_formats array<string>: What their values are; null without values
--   damaged_ranges bigint: Rows in quarantine
--   read_by array<string>: Consumer groups that have committed an offset of the topic; null where none is known
WITH ended AS (
  SELECT topic,
    sum(CASE WHEN outcome = 'aborted' THEN records ELSE 0 END) AS aborted,
    sum(CASE WHEN outcome = 'open' THEN records ELSE 0 END) AS open_records
  FROM current_transactions GROUP BY topic
), gaps AS (
  SELECT topic, sum(CASE WHEN cause = 'compaction' THEN offsets END) AS compacted,
    sum(CASE WHEN cause = 'after_open_transaction' THEN offsets END) AS after_open
  FROM offset_gaps WHERE cause IN ('compaction', 'after_open_transaction') GROUP BY topic
), missing AS (
  SELECT topic, sum(max_records) AS offsets FROM lost_offsets GROUP BY topic
), spans AS (
  SELECT topic, min(log_start_offset) AS first_offset, max(last_offset) AS last_offset,
    sum(greatest(CAST(last_offset AS DECIMAL(20, 0)) - log_start_offset + 1, 0)) AS offsets
  FROM logs GROUP BY topic
), written AS (
  SELECT topic, max(modified) AS last_write FROM segments GROUP BY topic
), days AS (
  SELECT topic, CAST(DATE '1970-01-01' + CAST(floor(CAST(max_timestamp_ms AS DOUBLE) / 86400000) AS INT) AS STRING) AS written_on,
    CAST(sum(size_bytes) AS BIGINT) AS bytes
  FROM published_batches WHERE max_timestamp IS NOT NULL
  GROUP BY topic, DATE '1970-01-01' + CAST(floor(CAST(max_timestamp_ms AS DOUBLE) / 86400000) AS INT)
), growth AS (
  SELECT topic, map_from_entries(sort_array(array_agg((written_on, bytes)))) AS bytes_by_day FROM days GROUP BY topic
), keyed AS (
  SELECT topic, count(DISTINCT key) AS distinct_keys, count(*) FILTER (WHERE key IS NULL) AS null_keys
  FROM published_records WHERE NOT is_control GROUP BY topic
), ends AS (
  -- a damaged log may end anywhere in 64 bits
  SELECT topic, partition, greatest(max(last_offset), 99) - 100 AS looked_after FROM logs GROUP BY topic, partition
), looked AS (
  SELECT r.topic, CASE WHEN r.key IS NOT NULL THEN kafka_payload(r.topic, 'key', r.key, r.headers) END AS of_key,
    CASE WHEN r.value IS NOT NULL THEN kafka_payload(r.topic, 'value', r.value, r.headers) END AS of_value
  FROM published_records r JOIN ends e ON e.topic = r.topic AND e.partition = r.partition
  WHERE NOT r.is_control AND r.offset > e.looked_after
), formats AS (
  SELECT topic,
    CASE WHEN count(of_key.format) > 0
      THEN sort_array(array_agg(DISTINCT of_key.format) FILTER (WHERE of_key.format IS NOT NULL)) END AS key_formats,
    CASE WHEN count(of_value.format) > 0
      THEN sort_array(array_agg(DISTINCT of_value.format) FILTER (WHERE of_value.format IS NOT NULL)) END AS value_formats
  FROM looked GROUP BY topic
), readers AS (
  SELECT topic, sort_array(array_agg(DISTINCT `group`)) AS read_by FROM consumer_offsets
  WHERE is_current AND is_read AND committed_offset IS NOT NULL GROUP BY topic
)
SELECT t.topic, t.partitions, t.folders, t.records AS messages, t.committed_records AS committed,
  coalesce(e.aborted, 0) AS aborted, coalesce(e.open_records, 0) AS open,
  CAST(coalesce(c.after_open, 0) AS BIGINT) AS after_open, t.control_records AS markers,
  CAST(coalesce(c.compacted, 0) AS DECIMAL(38, 0)) AS compacted_away,
  CAST(coalesce(m.offsets, 0) AS DECIMAL(38, 0)) AS lost,
  s.first_offset, s.last_offset, CAST(coalesce(s.offsets, 0) AS DECIMAL(38, 0)) AS offsets, t.first_timestamp, t.last_timestamp, w.last_write,
  t.bytes, g.bytes_by_day, coalesce(k.distinct_keys, 0) AS keys, coalesce(k.null_keys, 0) AS null_keys,
  f.key_formats, f.value_formats, t.damaged_ranges, r.read_by
FROM topics t
LEFT JOIN ended e ON e.topic = t.topic
LEFT JOIN gaps c ON c.topic = t.topic
LEFT JOIN missing m ON m.topic = t.topic
LEFT JOIN spans s ON s.topic = t.topic
LEFT JOIN written w ON w.topic = t.topic
LEFT JOIN growth g ON g.topic = t.topic
LEFT JOIN keyed k ON k.topic = t.topic
LEFT JOIN formats f ON f.topic = t.topic
LEFT JOIN readers r ON r.topic = t.topic
