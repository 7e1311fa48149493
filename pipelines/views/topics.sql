-- What each topic has: partitions, bytes, records, times and damage
-- Columns:
--   topic string: Topic
--   partitions bigint: Partitions
--   folders bigint: Partition folders: more than partitions where there are replicas
--   segments, bytes, batches, records, committed_records, control_records: as in logs
--   uncommitted_records bigint: Data records of aborted and open transactions
--   first_timestamp, last_timestamp, damaged_ranges, damaged_bytes, tail_bytes, segments_in_part: as in logs
SELECT topic, count(DISTINCT partition) AS partitions, count(*) AS folders, sum(segments) AS segments, sum(bytes) AS bytes,
  sum(batches) AS batches, sum(records) AS records, sum(committed_records) AS committed_records,
  sum(control_records) AS control_records, coalesce(max(uncommitted), 0) AS uncommitted_records,
  min(first_timestamp) AS first_timestamp, max(last_timestamp) AS last_timestamp, sum(damaged_ranges) AS damaged_ranges,
  sum(damaged_bytes) AS damaged_bytes, sum(tail_bytes) AS tail_bytes, sum(segments_in_part) AS segments_in_part
FROM logs LEFT JOIN (
  SELECT topic AS name, sum(records) AS uncommitted FROM current_transactions WHERE outcome <> 'committed' GROUP BY topic
) AS transactions_of ON name = topic
GROUP BY topic
