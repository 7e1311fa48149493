-- What a transaction coordinator keeps of transactional ids: a row a change of state, and a tombstone where an
-- id expired
-- Columns:
--   transactional_id string: Transactional id
--   producer_id bigint: Producer id; joins to `transactions.producer_id`
--   producer_epoch smallint: Producer epoch
--   state string: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead or PrepareEpochFence
--   timeout_ms int: Transaction timeout, milliseconds
--   partitions array<struct<topic:string,partitions:array<int>>>: Partitions of the transaction; null for none
--   last_update_timestamp timestamp: When the state changed
--   start_timestamp timestamp: When the transaction began; null before its first partition
--   previous_producer_id bigint: Producer id of the last committed transaction; -1 none
--   next_producer_id bigint: Producer id that follows; -1 none
--   next_producer_epoch smallint: Its epoch; -1 none
--   client_transaction_version smallint: transaction.version of the client
--   is_tombstone boolean: The transactional id expired
--   is_current boolean: The last record of this transactional id in its cluster, of equal ones in several copies the first
--   version int: Version of the value, 0 or 1; null for a tombstone
--   log_partition int: Partition of `__transaction_state`
--   record_offset, record_timestamp, segment, cluster, is_read, error, raw_key, raw_value: as in consumer_offsets
SELECT t.transactional_id, t.producer_id, t.producer_epoch, t.state, t.timeout_ms, t.partitions,
  t.last_update_timestamp, t.start_timestamp, t.previous_producer_id, t.next_producer_id,
  t.next_producer_epoch, t.client_transaction_version, value IS NULL AS is_tombstone,
  row_number() OVER (PARTITION BY cluster, partition, key ORDER BY offset DESC, segment) = 1 AS is_current,
  t.version, partition AS log_partition, offset AS record_offset, timestamp AS record_timestamp, segment, cluster, t.is_read,
  t.error, if(t.error IS NOT NULL, key, NULL) AS raw_key, if(t.error IS NOT NULL, value, NULL) AS raw_value
FROM (SELECT *, kafka_transaction_state(key, value) AS t FROM internal_records WHERE topic = '__transaction_state')
