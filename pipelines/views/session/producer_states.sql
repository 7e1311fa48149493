-- What transaction coordinators noted last of each producer id, by cluster (`log_clusters`)
-- Columns:
--   cluster string: Topic id of `__transaction_state`, else the log directory of its copy
--   producer_id bigint: Producer id, of the transactional id now or before
--   producer_epoch smallint: Producer epoch; null for a producer id that it had before
--   transactional_id string: Transactional id
--   state string: State of the transactional id
--   partitions array<struct<topic:string,partitions:array<int>>>: Partitions of its transaction that have no marker yet; null for a producer id that it had before
--   own_timeout_ms int: Transaction timeout of the producer, milliseconds
--   start_timestamp timestamp: When the last transaction began
--   updated_ms bigint: When the state changed
--   noted_until_ms bigint: The newest timestamp of its partition of `__transaction_state`: what came later is not known
--   unread_records bigint: Records and damaged ranges of the cluster's `__transaction_state` that can't be read (`unread_internal`): its state may be another
WITH noted AS (
  -- how far each log goes
  SELECT t.*, max(unix_millis(t.record_timestamp)) OVER (PARTITION BY t.cluster, t.log_partition) AS noted_until_ms
  FROM transaction_states t
), latest AS (
  -- the last record of each transactional id
  SELECT t.cluster, t.transactional_id, t.producer_id, t.producer_epoch, t.previous_producer_id, t.state, t.partitions, t.is_tombstone,
    t.timeout_ms AS own_timeout_ms, t.start_timestamp, unix_millis(t.last_update_timestamp) AS updated_ms, t.noted_until_ms,
    row_number() OVER (PARTITION BY t.cluster, t.log_partition, t.transactional_id
      ORDER BY t.record_offset DESC, t.segment) AS number
  FROM noted t
  WHERE t.is_read
), states AS (
  -- a second row for the producer id before, which has no epoch and no partitions there
  SELECT cluster, CASE WHEN place = 0 THEN producer_id ELSE previous_producer_id END AS producer_id,
    CASE WHEN place = 0 THEN producer_epoch END AS producer_epoch, transactional_id, state,
    CASE WHEN place = 0 THEN partitions END AS partitions, own_timeout_ms, start_timestamp, updated_ms, noted_until_ms
  FROM (SELECT *, explode(sequence(0, CASE WHEN previous_producer_id >= 0 AND previous_producer_id <> producer_id THEN 1 ELSE 0 END)) AS place
    FROM latest WHERE number = 1 AND NOT is_tombstone)
), numbered AS (
  SELECT *, row_number() OVER (PARTITION BY cluster, producer_id ORDER BY updated_ms DESC, transactional_id) AS rank FROM states
)
SELECT n.cluster, n.producer_id, n.producer_epoch, n.transactional_id, n.state, n.partitions, n.own_timeout_ms, n.start_timestamp,
  n.updated_ms, n.noted_until_ms, coalesce(u.unread_records + u.damaged_ranges, 0) AS unread_records
FROM numbered n LEFT JOIN unread_internal u ON u.internal_topic = '__transaction_state' AND u.cluster = n.cluster
WHERE n.rank = 1
