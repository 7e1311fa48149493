-- Transactions that hold the last stable offset of their log for longer than a broker allows: no READ_COMMITTED consumer
-- gets past them, and the log cleaner stops there. A transaction's age is the newest timestamp of its log less that of
-- its first batch
-- Parameters:
--   timeout_ms bigint DEFAULT 900000: transaction.max.timeout.ms of the brokers
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   producer_id bigint: Producer id
--   producer_epoch smallint: Producer epoch of the data
--   first_offset bigint: First offset of the transaction
--   last_offset bigint: Last offset of its data
--   records bigint: Its data records
--   began timestamp: Timestamp of its first batch
--   open_ms bigint: For how long it is open, in the time of the log
--   last_stable_offset bigint: Where READ_COMMITTED consumers of the log stop: the first offset of the first open transaction
--   held_records bigint: Data records at or after that offset, of all producers
--   held_bytes bigint: Bytes of the batches from there on, which the log cleaner can't clean
--   outcome_uncertain boolean: The marker may lie in damaged bytes: look there before you abort
--   abort_command string: The command that aborts the transaction
WITH stuck AS (
  SELECT topic, partition, partition_dir, min(first_offset) AS last_stable_offset
  FROM current_transactions WHERE holds_last_stable_offset GROUP BY topic, partition, partition_dir
), totals AS (
  SELECT b.topic, b.partition, b.partition_dir, h.last_stable_offset, max(b.max_timestamp_ms) AS newest_ms,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset AND NOT b.is_control THEN b.record_count ELSE 0 END) AS held_records,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset THEN b.size_bytes ELSE 0 END) AS held_bytes
  FROM published_batches b JOIN stuck h ON h.topic = b.topic AND h.partition = b.partition
    AND h.partition_dir = b.partition_dir
  WHERE b.status IN ('ok', 'suspect')
  GROUP BY b.topic, b.partition, b.partition_dir, h.last_stable_offset
), first_batches AS (
  SELECT t.*, b.base_timestamp_ms
  FROM current_transactions t JOIN published_batches b ON b.topic = t.topic AND b.partition = t.partition
    AND b.partition_dir = t.partition_dir AND b.producer_id = t.producer_id AND b.base_offset = t.first_offset
    AND b.status IN ('ok', 'suspect')
  WHERE t.holds_last_stable_offset AND b.base_timestamp_ms >= 0
)
SELECT t.topic, t.partition, t.partition_dir, t.producer_id, t.producer_epoch, t.first_offset, t.last_offset, t.records,
  CASE WHEN t.base_timestamp_ms < 253402300800000 THEN timestamp_millis(t.base_timestamp_ms) END AS began,
  l.newest_ms - t.base_timestamp_ms AS open_ms, l.last_stable_offset, l.held_records, l.held_bytes, t.outcome_uncertain,
  concat('kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic ''', replace(t.topic, '''', '''\\'''''),
    ''' --partition ', t.partition, ' --start-offset ', t.first_offset) AS abort_command
FROM first_batches t JOIN totals l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
WHERE l.newest_ms - t.base_timestamp_ms > timeout_ms
