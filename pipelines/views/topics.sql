-- What each topic has: partitions, bytes, records, times and damage
-- Columns:
--   topic string: Topic
--   partitions bigint: Partitions
--   folders bigint: Partition folders: more than partitions where there are replicas
--   segments, bytes, batches, records, first_timestamp, last_timestamp, damaged_ranges, damaged_bytes, tail_bytes: as in logs
--   uncommitted_records bigint: Data records of aborted and open transactions, which committed_records and messages leave out
--   segments_in_part bigint: Segments of which records, or all, are left out, as --since, --until or --offsets request
SELECT topic, count(DISTINCT partition) AS partitions, count(*) AS folders, sum(segments) AS segments, sum(bytes) AS bytes,
  sum(batches) AS batches, sum(records) AS records, min(first_timestamp) AS first_timestamp,
  max(last_timestamp) AS last_timestamp, sum(damaged_ranges) AS damaged_ranges, sum(damaged_bytes) AS damaged_bytes,
  sum(tail_bytes) AS tail_bytes, coalesce(max(uncommitted), 0) AS uncommitted_records,
  sum(segments_in_part) AS segments_in_part
FROM logs LEFT JOIN (
  SELECT topic AS name, sum(records) AS uncommitted FROM current_transactions WHERE outcome <> 'committed' GROUP BY topic
) AS transactions_of ON name = topic
GROUP BY topic
