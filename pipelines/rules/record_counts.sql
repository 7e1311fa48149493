-- How many records each log has on the disk, and how many of them consumers get. What batches tell needs no look at the
-- records: those of segments in part, and of the one that the log begins in, are counted one by one
-- Columns: those of a log, then
--   records bigint: Data records, also those of transactions that did not commit, and below the log start
--   control_records bigint: Control records: markers of transactions, and those of a metadata log
--   committed_records bigint: Rows of committed_records
WITH looked AS (
  SELECT t.segment FROM log_stretches t JOIN log_starts l ON l.topic = t.topic AND l.partition = t.partition
    AND l.partition_dir = t.partition_dir
  WHERE t.left_out > 0 OR (l.is_cut AND t.file_base_offset < l.log_start_offset
    AND coalesce(t.next_file_base_offset > l.log_start_offset, true))
), short AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 8
), long AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 20
), endless AS (
  SELECT * FROM undelivered_offsets WHERE slot_bits = 62
), begins AS (
  SELECT * FROM log_starts WHERE is_cut
), whole AS (
  SELECT b.topic, b.partition, b.partition_dir, b.base_offset, b.record_count, b.is_control, b.is_transactional, b.producer_id
  FROM counted_batches b ANTI JOIN looked ON looked.segment = b.segment
), delivered AS (
  SELECT b.topic, b.partition, b.partition_dir, b.record_count
  FROM whole b
  ANTI JOIN short ON short.topic = b.topic AND short.partition = b.partition AND short.partition_dir = b.partition_dir
    AND short.producer_id = b.producer_id AND b.is_transactional AND short.slot = shiftright(b.base_offset, 8)
    AND b.base_offset BETWEEN short.first_offset AND short.last_offset
  ANTI JOIN long ON long.topic = b.topic AND long.partition = b.partition AND long.partition_dir = b.partition_dir
    AND long.producer_id = b.producer_id AND b.is_transactional AND long.slot = shiftright(b.base_offset, 20)
    AND b.base_offset BETWEEN long.first_offset AND long.last_offset
  ANTI JOIN endless ON endless.topic = b.topic AND endless.partition = b.partition AND endless.partition_dir = b.partition_dir
    AND endless.producer_id = b.producer_id AND b.is_transactional AND endless.slot = shiftright(b.base_offset, 62)
    AND b.base_offset BETWEEN endless.first_offset AND endless.last_offset
  ANTI JOIN last_stable_offsets held ON held.topic = b.topic AND held.partition = b.partition
    AND held.partition_dir = b.partition_dir AND b.base_offset >= held.last_stable_offset
  ANTI JOIN begins ON begins.topic = b.topic AND begins.partition = b.partition AND begins.partition_dir = b.partition_dir
    AND b.base_offset < begins.log_start_offset
  WHERE NOT b.is_control
), counted AS (
  SELECT topic, partition, partition_dir, CASE WHEN is_control THEN 0 ELSE record_count END AS records,
    CASE WHEN is_control THEN record_count ELSE 0 END AS control_records, 0 AS committed_records
  FROM whole
  UNION ALL
  SELECT topic, partition, partition_dir, 0, 0, record_count FROM delivered
  UNION ALL
  SELECT r.topic, r.partition, r.partition_dir, CASE WHEN r.is_control THEN 0 ELSE 1 END,
    CASE WHEN r.is_control THEN 1 ELSE 0 END, 0
  FROM published_records r SEMI JOIN looked ON looked.segment = r.segment
  UNION ALL
  SELECT c.topic, c.partition, substring(c.segment, 1, length(c.segment) - 25), 0, 0, 1
  FROM committed_records c SEMI JOIN looked ON looked.segment = c.segment
)
SELECT topic, partition, partition_dir, CAST(sum(records) AS BIGINT) AS records,
  CAST(sum(control_records) AS BIGINT) AS control_records, CAST(sum(committed_records) AS BIGINT) AS committed_records
FROM counted GROUP BY topic, partition, partition_dir
