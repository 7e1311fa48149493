-- Transactions that hold the last stable offset of their log for longer than a broker allows: no READ_COMMITTED consumer
-- gets past them, and the log cleaner stops there. A transaction's age is the time of its log (`log_clocks`) less that of
-- its first batch (`transaction_ages`). Producers' clocks may be wrong, so each row has how certain it is, and why. Where
-- `__transaction_state` is in the lake, what the transaction's coordinator noted there decides
-- Parameters:
--   timeout_ms bigint DEFAULT 900000: transaction.max.timeout.ms of the brokers
-- Columns: those of a log, then
--   producer_id, producer_epoch, first_offset, last_offset, records: as in transaction_ages
--   began timestamp: The coordinator's start, where it has the transaction open; else the time of its first batch, between the markers around it; null where that is not credible
--   open_ms bigint: For how long it is open, in the time of the log; null where it is not known when it began
--   now_ms, witness: as in transaction_ages
--   certainty string: That it hangs: certain: by the brokers' clock alone, or by the coordinator; likely: by a producer's clock that nothing contradicts; unknown
--   why string: Why it is as certain as that
--   transactional_id string: Transactional id that the coordinator has for the producer id; null where it is not known
--   coordinator_state string: State of the transactional id, as in `transaction_states`
--   coordinator_start timestamp: When its last transaction began, by the coordinator's clock
--   last_stable_offset bigint: Where READ_COMMITTED consumers of the log stop: the first offset of the first open transaction
--   held_records bigint: Data records at or after that offset, of all producers
--   held_bytes bigint: Bytes of the batches from there on, which the log cleaner can't clean
--   outcome_uncertain boolean: The marker may lie in damaged bytes: look there before you abort
--   check_command string: The command that queries the brokers: run it before an abort; null for a name with control characters
--   abort_command string: The command that aborts the transaction; null unless it is certain, and as check_command is
WITH totals AS (
  SELECT b.topic, b.partition, b.partition_dir, h.last_stable_offset,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset AND NOT b.is_control THEN b.record_count ELSE 0 END) AS held_records,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset THEN b.size_bytes ELSE 0 END) AS held_bytes
  FROM counted_batches b JOIN last_stable_offsets h ON h.topic = b.topic AND h.partition = b.partition
    AND h.partition_dir = b.partition_dir
  GROUP BY b.topic, b.partition, b.partition_dir, h.last_stable_offset
), noted AS (
  SELECT a.*, k.transactional_id, k.state AS coordinator_state, k.start_timestamp AS coordinator_start, k.own_timeout_ms,
    k.updated_ms, k.noted_until_ms,
    -- the epoch may rise when a transaction ends, so an Ongoing one of another epoch is a later one
    coalesce((k.state IN ('PrepareCommit', 'PrepareAbort', 'PrepareEpochFence')
      OR (k.state = 'Ongoing' AND k.producer_epoch = a.producer_epoch)) AND try_element_at(
      filter(k.partitions, p -> p.topic = a.topic AND array_contains(p.partitions, a.partition)), 1) IS NOT NULL, false) AS is_pending
  FROM transaction_ages a
  LEFT JOIN log_clusters l ON l.topic = a.topic AND l.partition = a.partition AND l.partition_dir = a.partition_dir
    AND l.internal_topic = '__transaction_state'
  LEFT JOIN producer_states k ON k.cluster = l.cluster AND k.producer_id = a.producer_id
), compared AS (
  SELECT *, CASE WHEN is_pending THEN unix_millis(coordinator_start) ELSE began_ms END AS start_ms,
    -- it was ended before the log's end, and what the coordinator noted is newer than its start
    coalesce(updated_ms <= broker_ms AND noted_until_ms >= broker_ms - proven_open_ms, false) AS is_ended,
    coalesce(updated_ms <= now_ms AND noted_until_ms >= began_ms, false) AS is_likely_ended,
    coalesce(updated_ms > now_ms, false) AS is_ended_later
  FROM noted
), judged AS (
  SELECT *, now_ms - start_ms AS age_ms,
    CASE WHEN outcome_uncertain THEN 'its marker may lie in damaged bytes'
      WHEN is_pending THEN 'the coordinator has it open, for longer than its own timeout, and has to end it'
      WHEN is_ended THEN 'the coordinator ended it, and its marker did not come'
      WHEN is_ended_later THEN 'the coordinator ended it after the end of this copy: its marker may have come since'
      WHEN proven_open_ms > timeout_ms THEN 'by the brokers'' clock'
      WHEN is_likely_ended THEN 'the coordinator ended it, if it began when its producer says'
      WHEN open_ms IS NULL THEN 'its first batch has no credible timestamp'
      WHEN clock_certainty = 'unknown' THEN 'the newest timestamp is a producer''s, and the file''s modification time does not confirm it'
      WHEN open_ms > 604800000 THEN 'open for more than 7 days by a producer''s clock, which may be wrong'
      ELSE 'by a producer''s clock' END AS why
  FROM compared
), ranked AS (
  SELECT *, CASE WHEN why IN ('by the brokers'' clock', 'the coordinator ended it, and its marker did not come') THEN 'certain'
      WHEN why IN ('by a producer''s clock', 'the coordinator ended it, if it began when its producer says') THEN 'likely'
      ELSE 'unknown' END AS certainty,
    -- pasted into a terminal, control characters act in spite of quotes
    CASE WHEN regexp_replace(topic, '[' || chr(92) || 'p{C}' || chr(92) || 'p{Zl}' || chr(92) || 'p{Zp}]', '') = topic
      THEN replace(topic, '''', '''' || chr(92) || '''''') END AS quoted_topic,
    CASE WHEN regexp_replace(transactional_id, '[' || chr(92) || 'p{C}' || chr(92) || 'p{Zl}' || chr(92) || 'p{Zp}]', '') = transactional_id
      THEN replace(transactional_id, '''', '''' || chr(92) || '''''') END AS quoted_id
  FROM judged WHERE age_ms IS NULL OR (age_ms > timeout_ms AND (NOT is_pending OR age_ms > own_timeout_ms))
)
SELECT t.topic, t.partition, t.partition_dir, t.producer_id, t.producer_epoch, t.first_offset, t.last_offset, t.records,
  timestamp_millis(t.start_ms) AS began, t.age_ms AS open_ms, t.now_ms, t.witness, t.certainty, t.why, t.transactional_id,
  t.coordinator_state, t.coordinator_start, l.last_stable_offset, l.held_records, l.held_bytes, t.outcome_uncertain,
  'kafka-transactions.sh --bootstrap-server HOST:9092 ' || CASE WHEN t.quoted_id IS NOT NULL
    THEN 'describe --transactional-id ''' || t.quoted_id || ''''
    ELSE 'find-hanging --topic ''' || t.quoted_topic || ''' --partition ' || t.partition END AS check_command,
  CASE WHEN t.certainty = 'certain' THEN 'kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic ''' || t.quoted_topic
    || ''' --partition ' || t.partition || ' --start-offset ' || t.first_offset END AS abort_command
FROM ranked t JOIN totals l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
