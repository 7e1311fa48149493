-- Transactions that hold the last stable offset of their log for longer than a broker allows: no READ_COMMITTED consumer
-- gets past them, and the log cleaner stops there. A transaction's age is the time of its log (`log_clocks`) less that of
-- its first batch (`transaction_ages`). Producers' clocks may be wrong, so each row has how certain it is, and why
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
--   began timestamp: Time of its first batch, between the markers around it; null where that is not credible
--   open_ms bigint: For how long it is open, in the time of the log; null where it is not known when it began
--   now_ms bigint: The time of the log
--   witness string: Which clock gave it: broker, producer or file (`log_clocks`)
--   certainty string: That it is open for longer than timeout_ms: certain: by the brokers' clock alone; likely: by a producer's clock that the file's modification time confirms; unknown
--   why string: Why it is as certain as that
--   last_stable_offset bigint: Where READ_COMMITTED consumers of the log stop: the first offset of the first open transaction
--   held_records bigint: Data records at or after that offset, of all producers
--   held_bytes bigint: Bytes of the batches from there on, which the log cleaner can't clean
--   outcome_uncertain boolean: The marker may lie in damaged bytes: look there before you abort
--   check_command string: The command that lists what hangs in the partition according to the brokers: run it before an abort
--   abort_command string: The command that aborts the transaction; null unless it is certain
WITH stuck AS (
  SELECT topic, partition, partition_dir, min(first_offset) AS last_stable_offset
  FROM current_transactions WHERE holds_last_stable_offset GROUP BY topic, partition, partition_dir
), totals AS (
  SELECT b.topic, b.partition, b.partition_dir, h.last_stable_offset,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset AND NOT b.is_control THEN b.record_count ELSE 0 END) AS held_records,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset THEN b.size_bytes ELSE 0 END) AS held_bytes
  FROM published_batches b JOIN stuck h ON h.topic = b.topic AND h.partition = b.partition
    AND h.partition_dir = b.partition_dir
  WHERE b.status IN ('ok', 'suspect')
  GROUP BY b.topic, b.partition, b.partition_dir, h.last_stable_offset
), judged AS (
  SELECT *, CASE WHEN outcome_uncertain THEN 'its marker may lie in damaged bytes'
      WHEN proven_open_ms > timeout_ms THEN 'by the brokers'' clock'
      WHEN open_ms IS NULL THEN 'its first batch has no credible timestamp'
      WHEN clock_certainty = 'unknown' THEN 'the newest timestamp is a producer''s, and the file''s modification time does not confirm it'
      WHEN open_ms > 604800000 THEN 'open for more than 7 days by a producer''s clock, which may be wrong'
      ELSE 'by a producer''s clock' END AS why
  FROM transaction_ages WHERE open_ms IS NULL OR open_ms > timeout_ms
)
SELECT t.topic, t.partition, t.partition_dir, t.producer_id, t.producer_epoch, t.first_offset, t.last_offset, t.records,
  timestamp_millis(t.began_ms) AS began, t.open_ms, t.now_ms, t.witness,
  CASE why WHEN 'by the brokers'' clock' THEN 'certain' WHEN 'by a producer''s clock' THEN 'likely' ELSE 'unknown' END AS certainty,
  why, l.last_stable_offset, l.held_records, l.held_bytes, t.outcome_uncertain,
  'kafka-transactions.sh --bootstrap-server HOST:9092 find-hanging --topic '''
    || replace(t.topic, '''', '''' || chr(92) || '''''') || ''' --partition ' || t.partition AS check_command,
  CASE WHEN why = 'by the brokers'' clock' THEN 'kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic '''
    || replace(t.topic, '''', '''' || chr(92) || '''''') || ''' --partition ' || t.partition || ' --start-offset ' || t.first_offset
    END AS abort_command
FROM judged t JOIN totals l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
