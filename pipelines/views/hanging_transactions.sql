-- Transactions that hold the last stable offset of their log for longer than a broker allows: no READ_COMMITTED consumer
-- gets past them, and the log cleaner stops there. Judged by two clocks: as of the last write, the time of the log
-- (`log_clocks`) less that of the transaction's first batch (`transaction_ages`); and now, by the wall clock, which counts
-- where no broker has written to the log since, as on the disk of a dead one. Producers' clocks may be wrong, so each row has
-- how certain it is, and why. Where `__transaction_state` is in the lake, what the coordinator noted there decides
-- Parameters:
--   timeout_ms bigint DEFAULT $TRANSACTION_TIMEOUT_MS: transaction.max.timeout.ms of the brokers
--   at_ms bigint DEFAULT NULL: ms since 1970 that count as now
-- Columns: those of a log, then
--   producer_id, producer_epoch, first_offset, last_offset, records: as in transaction_ages
--   state string: ongoing, prepared, markers written, ended or open, as docs/views.md explains
--   hangs_as_of_last_write boolean: It is open for too long in the time of the log, or the coordinator had ended it by then
--   hangs_now boolean: It is open for too long by the wall clock, if no broker has written to the log since
--   began timestamp: Start by the coordinator, else time of the first batch; null where that is not credible
--   open_ms bigint: For how long it is open as of the last write; null where it is not known when it began
--   open_now_ms bigint: For how long by the wall clock; null likewise
--   now_ms, witness: as in transaction_ages
--   certainty string: How certain it is that only an abort ends it: certain, likely (by a producer's clock), unknown
--   why string: Why it is as certain as that
--   remedy string: What ends it, and what that costs
--   transactional_id string: Transactional id that the coordinator has for the producer id; null where it is not known
--   coordinator_state string: State of the transactional id, as in `transaction_states`
--   coordinator_start timestamp: When its last transaction began, by the coordinator's clock
--   coordinator_timeout_ms int: The producer's transaction timeout; $NEVER_MS of a client that commits in two phases (KIP-939)
--   commits_in_two_phases boolean: Its client, such as Flink's sink, may have counted it as committed already: an abort loses that
--   unread_states bigint: Records of `__transaction_state` that can't be read: one may be of this transaction
--   last_stable_offset bigint: Where READ_COMMITTED consumers of the log stop; null where none is held back
--   held_records bigint: Data records at or after that offset, of all producers
--   held_bytes bigint: Bytes of the batches from there on, which the log cleaner can't clean
--   outcome_uncertain boolean: The marker may lie in damaged bytes: look there before you abort
--   check_command string: The command that queries the brokers: run it before an abort
--   abort_command string: The command that aborts the transaction; null unless it is certain, and where an abort may lose what was committed
WITH totals AS (
  SELECT b.topic, b.partition, b.partition_dir, h.last_stable_offset,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset AND NOT b.is_control THEN b.record_count ELSE 0 END) AS held_records,
    sum(CASE WHEN b.last_offset >= h.last_stable_offset THEN b.size_bytes ELSE 0 END) AS held_bytes
  FROM counted_batches b JOIN last_stable_offsets h ON h.topic = b.topic AND h.partition = b.partition
    AND h.partition_dir = b.partition_dir
  GROUP BY b.topic, b.partition, b.partition_dir, h.last_stable_offset
), clusters AS (
  SELECT l.topic, l.partition, l.partition_dir, l.cluster, coalesce(u.unread_records + u.damaged_ranges, 0) AS unread_states
  FROM log_clusters l LEFT JOIN unread_internal u ON u.internal_topic = l.internal_topic AND u.cluster = l.cluster
  WHERE l.internal_topic = '__transaction_state'
), noted AS (
  SELECT a.*, l.cluster, coalesce(l.unread_states, 0) AS unread_states, k.transactional_id, k.state AS coordinator_state,
    k.start_timestamp AS coordinator_start, k.own_timeout_ms, k.updated_ms, k.noted_until_ms,
    -- the epoch may rise when a transaction ends, so an Ongoing one of another epoch is a later one
    coalesce((k.state IN $PREPARE
      OR (k.state = 'Ongoing' AND k.producer_epoch = a.producer_epoch)) AND try_element_at(
      filter(k.partitions, p -> p.topic = a.topic AND array_contains(p.partitions, a.partition)), 1) IS NOT NULL, false) AS is_pending
  FROM transaction_ages a
  LEFT JOIN clusters l ON l.topic = a.topic AND l.partition = a.partition AND l.partition_dir = a.partition_dir
  LEFT JOIN producer_states k ON k.cluster = l.cluster AND k.producer_id = a.producer_id
), compared AS (
  SELECT *, CASE WHEN is_pending THEN unix_millis(coordinator_start) ELSE began_ms END AS start_ms,
    -- it was ended before the log's end, and what the coordinator noted is newer than its start
    NOT is_pending AND unread_states = 0
      AND coalesce(updated_ms <= broker_ms AND noted_until_ms >= broker_ms - proven_open_ms, false) AS is_ended,
    NOT is_pending AND coalesce(updated_ms <= now_ms AND noted_until_ms >= began_ms, false) AS is_likely_ended,
    NOT is_pending AND coalesce(updated_ms > now_ms, false) AS is_ended_later,
    is_pending AND coordinator_state <> 'Ongoing' AS is_prepared
  FROM noted
), aged AS (
  SELECT *, now_ms - start_ms AS age_ms,
    CAST(least(greatest(CAST(coalesce(at_ms, unix_millis(current_timestamp)) AS DECIMAL(38, 0)) - start_ms,
      -9223372036854775808), 9223372036854775807) AS BIGINT) AS wall_age_ms,
    -- of a prepared one the decision is made, and of one in two phases no coordinator makes it
    CASE WHEN is_pending AND NOT is_prepared AND own_timeout_ms < $NEVER_MS THEN own_timeout_ms ELSE timeout_ms END AS allowed_ms
  FROM compared
), timed AS (
  SELECT *, age_ms IS NULL OR is_ended OR (age_ms > timeout_ms AND age_ms > allowed_ms) AS hangs_as_of_last_write,
    wall_age_ms IS NULL OR is_ended OR (wall_age_ms > timeout_ms AND wall_age_ms > allowed_ms) AS hangs_now
  FROM aged
), judged AS (
  SELECT *, own_timeout_ms = $NEVER_MS AS waits_for_client, age_ms <= timeout_ms AS is_young,
    proven_open_ms > timeout_ms AS is_proven, open_ms IS NULL AS has_no_start,
    NOT hangs_as_of_last_write AS hangs_by_wall_clock_alone, clock_certainty = 'unknown' AS has_unknown_clock,
    open_ms > $LONGEST_LIKELY_MS AS is_too_long,
    coalesce(own_timeout_ms = $NEVER_MS OR $IS_OF_FLINK, false) AS commits_in_two_phases
  FROM timed WHERE hangs_as_of_last_write OR hangs_now
), ranked AS (
  SELECT topic, partition, partition_dir, producer_id, producer_epoch, first_offset, last_offset, records, $STATE AS state,
    hangs_as_of_last_write, hangs_now, start_ms, age_ms, wall_age_ms, now_ms, witness, $CERTAINTY AS certainty, $WHY AS why,
    transactional_id, coordinator_state, coordinator_start, own_timeout_ms, commits_in_two_phases, unread_states,
    outcome_uncertain
  FROM judged
), prepared AS (
  -- a row a partition of what coordinators have prepared
  SELECT cluster, producer_id, transactional_id, state, start_timestamp, own_timeout_ms, updated_ms, noted_until_ms, topic,
    explode(numbers) AS partition
  FROM (
    SELECT cluster, producer_id, transactional_id, state, start_timestamp, own_timeout_ms, updated_ms, noted_until_ms,
      part.topic AS topic, part.partitions AS numbers
    FROM (SELECT *, explode(partitions) AS part FROM producer_states
      WHERE state IN $PREPARE)
  )
), written AS (
  SELECT t.topic, t.partition, t.partition_dir, t.producer_id, t.producer_epoch, t.first_offset, t.last_offset, t.records,
    p.transactional_id, p.state AS coordinator_state, p.start_timestamp AS coordinator_start, p.own_timeout_ms, l.unread_states,
    unix_millis(p.start_timestamp) AS start_ms, p.noted_until_ms - p.updated_ms AS age_ms, p.noted_until_ms AS now_ms,
    CAST(least(greatest(CAST(coalesce(at_ms, unix_millis(current_timestamp)) AS DECIMAL(38, 0)) - p.updated_ms,
      -9223372036854775808), 9223372036854775807) AS BIGINT) AS wall_age_ms
  FROM prepared p
  JOIN clusters l ON l.cluster = p.cluster AND l.topic = p.topic AND l.partition = p.partition
  JOIN current_transactions t ON t.topic = l.topic AND t.partition = l.partition AND t.partition_dir = l.partition_dir
    AND t.producer_id = p.producer_id
  JOIN batch_times m ON m.topic = t.topic AND m.partition = t.partition AND m.partition_dir = t.partition_dir
    AND m.base_offset = t.marker_offset AND m.is_marker AND m.credible_newest_ms >= p.updated_ms
  ANTI JOIN compared c ON c.cluster = p.cluster AND c.producer_id = p.producer_id AND c.is_pending
), found AS (
  SELECT * FROM ranked
  UNION ALL
  SELECT topic, partition, partition_dir, producer_id, producer_epoch, first_offset, last_offset, records, 'markers written',
    age_ms > timeout_ms, wall_age_ms > timeout_ms, start_ms, age_ms, wall_age_ms, now_ms, 'broker',
    CASE WHEN age_ms > timeout_ms THEN 'likely' ELSE 'unknown' END,
    'the coordinator has it prepared, and this log has its marker', transactional_id, coordinator_state, coordinator_start,
    own_timeout_ms, false, unread_states, false
  FROM written WHERE age_ms > timeout_ms OR wall_age_ms > timeout_ms
), advised AS (
  SELECT *, $REMEDY AS remedy
  FROM (SELECT *, state = 'prepared' AS is_prepared, state = 'ongoing' AS is_pending, state = 'markers written' AS has_markers,
      coordinator_state = 'PrepareCommit' AS is_commit, coordinator_state = 'CompleteCommit' AS has_committed,
      certainty <> 'unknown' AS is_known, certainty = 'certain' AS is_certain
    FROM found)
), quoted AS (
  -- pasted into a terminal, control characters act in spite of quotes
  SELECT *, CASE WHEN regexp_replace(topic, '[' || chr(92) || 'p{C}' || chr(92) || 'p{Zl}' || chr(92) || 'p{Zp}]', '') = topic
      THEN replace(topic, '''', '''' || chr(92) || '''''') END AS quoted_topic,
    CASE WHEN regexp_replace(transactional_id, '[' || chr(92) || 'p{C}' || chr(92) || 'p{Zl}' || chr(92) || 'p{Zp}]', '') = transactional_id
      THEN replace(transactional_id, '''', '''' || chr(92) || '''''') END AS quoted_id
  FROM advised
)
SELECT t.topic, t.partition, t.partition_dir, t.producer_id, t.producer_epoch, t.first_offset, t.last_offset, t.records, t.state,
  t.hangs_as_of_last_write, t.hangs_now, timestamp_millis(t.start_ms) AS began, t.age_ms AS open_ms, t.wall_age_ms AS open_now_ms,
  t.now_ms, t.witness, t.certainty, t.why,
  t.remedy,
  t.transactional_id, t.coordinator_state, t.coordinator_start, t.own_timeout_ms AS coordinator_timeout_ms,
  t.commits_in_two_phases, t.unread_states,
  CASE WHEN t.state <> 'markers written' THEN l.last_stable_offset END AS last_stable_offset,
  CASE WHEN t.state <> 'markers written' THEN l.held_records ELSE 0 END AS held_records,
  CASE WHEN t.state <> 'markers written' THEN l.held_bytes ELSE 0 END AS held_bytes, t.outcome_uncertain,
  'kafka-transactions.sh --bootstrap-server HOST:9092 ' || CASE WHEN t.quoted_id IS NOT NULL
    THEN 'describe --transactional-id ''' || t.quoted_id || ''''
    ELSE 'find-hanging --topic ''' || t.quoted_topic || ''' --partition ' || t.partition END AS check_command,
  CASE WHEN t.certainty = 'certain' AND NOT t.commits_in_two_phases
    THEN 'kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic ''' || t.quoted_topic
    || ''' --partition ' || t.partition || ' --start-offset ' || t.first_offset END AS abort_command
FROM quoted t LEFT JOIN totals l ON l.topic = t.topic AND l.partition = t.partition AND l.partition_dir = t.partition_dir
