-- How a topic is written: batching, codecs, sizes of keys, values and headers, formats, and how evenly its partitions
-- are filled. Data records alone, of all folders, as they lie on the disk: those of transactions that did not commit and
-- those below the log start too. Of segments that were decoded in part, all batches count
-- Columns:
--   topic string: Topic
--   partitions bigint: Partitions with data
--   records bigint: Data records; of segments that were decoded in part, those in the table records
--   bytes bigint: Bytes of their batches on disk
--   batches bigint: Their batches
--   records_per_batch double: Records a batch
--   codecs map<string,bigint>: Codec -> bytes on disk of its batches
--   compression_ratio double: Payload bytes before compression for each byte stored; 1 without compression
--   magics map<tinyint,bigint>: Magic -> records
--   timestamp_types map<int,bigint>: 0 create time, 1 log append time, -1 none -> records
--   key_bytes_median int: Half of the keys are not longer; null without keys
--   key_bytes_p99 int: 99 % of the keys are not longer
--   key_bytes_max int: Longest key
--   value_bytes_median int: Half of the values are not longer; null without values
--   value_bytes_p99 int: 99 % of the values are not longer
--   value_bytes_max int: Longest value
--   null_keys bigint: Records without a key
--   null_values bigint: Records without a value (tombstones)
--   header_bytes bigint: Bytes of all header keys and values
--   largest_headers_bytes bigint: Bytes of the largest header set of a record; null without headers
--   largest_headers_partition int: Partition of that record
--   largest_headers_offset bigint: Its offset
--   first_timestamp timestamp: Lowest timestamp
--   last_timestamp timestamp: Highest timestamp
--   skew double: Records of the fullest partition for each record of the average one
WITH sized AS (
  SELECT topic, partition, timestamp, offset, octet_length(key) AS key_bytes, octet_length(value) AS value_bytes,
    CASE WHEN size(headers) = 1
      THEN CAST(bit_length(try_element_at(headers, 1).key) / 8 AS BIGINT) + coalesce(octet_length(try_element_at(headers, 1).value), 0)
    -- the digits of all bytes in hexadecimal
    ELSE CAST(length(array_join(transform(headers, h -> hex(h.key) || coalesce(hex(h.value), '')), '')) / 2 AS BIGINT) END AS headers_bytes
  FROM published_records WHERE NOT is_control
), grouped AS (
  SELECT topic, count(*) AS records, count_if(key_bytes IS NULL) AS null_keys, count_if(value_bytes IS NULL) AS null_values,
    CAST(percentile_disc(0.5) WITHIN GROUP (ORDER BY key_bytes) AS INT) AS key_bytes_median,
    CAST(percentile_disc(0.99) WITHIN GROUP (ORDER BY key_bytes) AS INT) AS key_bytes_p99, max(key_bytes) AS key_bytes_max,
    CAST(percentile_disc(0.5) WITHIN GROUP (ORDER BY value_bytes) AS INT) AS value_bytes_median,
    CAST(percentile_disc(0.99) WITHIN GROUP (ORDER BY value_bytes) AS INT) AS value_bytes_p99, max(value_bytes) AS value_bytes_max,
    coalesce(sum(headers_bytes), 0) AS header_bytes, max(headers_bytes) AS largest_headers_bytes,
    max_by(partition, (headers_bytes, ~partition, ~offset)) FILTER (WHERE headers_bytes IS NOT NULL) AS largest_headers_partition,
    max_by(offset, (headers_bytes, ~partition, ~offset)) FILTER (WHERE headers_bytes IS NOT NULL) AS largest_headers_offset,
    min(timestamp) AS first_timestamp, max(timestamp) AS last_timestamp
  FROM sized GROUP BY topic
), written AS (
  -- what batches tell of their records needs no look at the records
  SELECT topic, partition, magic, timestampType, compression, size_bytes, record_count, payload_bytes, uncompressed_bytes
  FROM counted_batches WHERE NOT is_control
), partitions AS (
  SELECT topic, count(*) AS partitions, max(records) / avg(records) AS skew
  FROM (SELECT topic, partition, sum(record_count) AS records FROM written GROUP BY topic, partition)
  WHERE records > 0 GROUP BY topic
), kinds AS (
  SELECT topic, map_from_entries(sort_array(array_agg((magic, records)))) AS magics
  FROM (SELECT topic, magic, sum(record_count) AS records FROM written GROUP BY topic, magic)
  WHERE records > 0 GROUP BY topic
), stamps AS (
  SELECT topic, map_from_entries(sort_array(array_agg((timestampType, records)))) AS timestamp_types
  FROM (SELECT topic, timestampType, sum(record_count) AS records FROM written GROUP BY topic, timestampType)
  WHERE records > 0 GROUP BY topic
), stored AS (
  SELECT topic, sum(bytes) AS bytes, sum(batches) AS batches, sum(records) AS records, sum(uncompressed) / sum(payload) AS compression_ratio,
    map_from_entries(sort_array(array_agg((compression, bytes)))) AS codecs
  FROM (
    SELECT topic, compression, sum(size_bytes) AS bytes, count(*) AS batches, sum(record_count) AS records, sum(uncompressed_bytes) AS uncompressed,
      sum(payload_bytes) AS payload
    FROM written GROUP BY topic, compression
  ) GROUP BY topic
)
SELECT g.topic, p.partitions, g.records, b.bytes, b.batches, b.records / CAST(b.batches AS DOUBLE) AS records_per_batch,
  b.codecs, b.compression_ratio, k.magics, t.timestamp_types, g.key_bytes_median, g.key_bytes_p99,
  g.key_bytes_max, g.value_bytes_median, g.value_bytes_p99, g.value_bytes_max, g.null_keys, g.null_values, g.header_bytes,
  g.largest_headers_bytes, g.largest_headers_partition, g.largest_headers_offset, g.first_timestamp, g.last_timestamp, p.skew
FROM grouped g
JOIN partitions p ON p.topic = g.topic
JOIN kinds k ON k.topic = g.topic
JOIN stamps t ON t.topic = g.topic
JOIN stored b ON b.topic = g.topic
