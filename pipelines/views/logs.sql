-- What each log has: offsets, times, bytes and damage. A log is what one partition folder holds; a topic-partition with
-- replicas in several folders has several
-- Columns: those of a log, then
--   segments bigint: Segment files
--   bytes bigint: Their lengths
--   batches bigint: Rows in batches
--   records bigint: Data records on the disk, also those that consumers do not get
--   committed_records bigint: Those that a READ_COMMITTED consumer gets: rows of committed_records
--   control_records bigint: Control records: markers of transactions, and those of a metadata log
--   log_start_offset bigint: The first offset that consumers may read (`log_starts`)
--   log_start_witness string: What tells it: checkpoint, epochs or segments (`log_starts`)
--   log_start_certainty string: certain, likely or unknown
--   first_segment_offset bigint: Base offset of the first segment
--   last_offset bigint: Last offset of the last batch; null without one
--   last_stable_offset bigint: Where READ_COMMITTED consumers stop: the first offset of an open transaction; null without one
--   first_timestamp timestamp: Lowest record timestamp
--   last_timestamp timestamp: Highest record timestamp
--   damaged_ranges bigint: Rows in quarantine
--   damaged_bytes bigint: Their bytes
--   tail_bytes bigint: Bytes of torn or zeroed tails
--   segments_in_part bigint: Segments of which records, or all, are left out, as --since, --until or --offsets request
WITH damage AS (
  SELECT topic, partition, partition_dir, sum(size_bytes) AS damaged_bytes
  FROM published_quarantine GROUP BY topic, partition, partition_dir
), listed AS (
  SELECT topic, partition, partition_dir, count(*) AS segments, sum(length) AS bytes, sum(batches) AS batches,
    min(file_base_offset) AS first_segment_offset,
    max_by(end_offset, CASE WHEN end_offset IS NOT NULL THEN file_base_offset END) AS last_offset,
    min(min_timestamp) AS first_timestamp, max(max_timestamp) AS last_timestamp, sum(damaged) AS damaged_ranges,
    sum(tail_bytes) AS tail_bytes, count_if(left_out <> 0) AS segments_in_part
  FROM segments GROUP BY topic, partition, partition_dir
)
SELECT s.topic, s.partition, s.partition_dir, s.segments, s.bytes, s.batches, coalesce(c.records, 0) AS records,
  coalesce(c.committed_records, 0) AS committed_records, coalesce(c.control_records, 0) AS control_records,
  b.log_start_offset, b.witness AS log_start_witness, b.certainty AS log_start_certainty, s.first_segment_offset,
  s.last_offset, h.last_stable_offset, s.first_timestamp, s.last_timestamp, s.damaged_ranges,
  coalesce(d.damaged_bytes, 0) AS damaged_bytes, s.tail_bytes, s.segments_in_part
FROM listed s
JOIN log_starts b ON b.topic = s.topic AND b.partition = s.partition AND b.partition_dir = s.partition_dir
LEFT JOIN record_counts c ON c.topic = s.topic AND c.partition = s.partition AND c.partition_dir = s.partition_dir
LEFT JOIN last_stable_offsets h ON h.topic = s.topic AND h.partition = s.partition AND h.partition_dir = s.partition_dir
LEFT JOIN damage d ON d.topic = s.topic AND d.partition = s.partition AND d.partition_dir = s.partition_dir
