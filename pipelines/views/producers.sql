-- What each producer id and epoch wrote into each log, and whether its sequence numbers follow each other. Batches of
-- producers without an id (-1) are one row for each way of encoding. Where the log cleaner removed batches, their
-- sequence numbers show as a gap. Where segments are left out, sequence numbers are not compared
-- Columns:
--   topic string: Topic
--   partition int: Partition
--   partition_dir string: Canonical URI of the partition folder
--   producer_id bigint: Producer id; -1 none
--   producer_epoch smallint: Producer epoch; -1 none
--   first_offset bigint: Base offset of the first batch
--   last_offset bigint: Last offset of the last batch
--   first_seen timestamp: Lowest timestamp of a batch's first record; null without one
--   last_seen timestamp: Highest timestamp; null without one
--   batches bigint: Sound data batches
--   records bigint: Their records
--   transactional_batches bigint: Those that belong to a transaction
--   first_sequence int: Base sequence of the first batch; -1 none
--   last_sequence int: Last sequence of the last batch; -1 none
--   sequence_gaps bigint: Batches whose base sequence is above the one that must follow
--   missing_sequences bigint: Sequence numbers in these gaps
--   duplicates bigint: Batches whose base sequence is not above the last sequence before
--   resets bigint: Batches that begin with sequence 0 again in the same epoch, but for the wrap after 2^31 - 1
--   next_epoch smallint: The next higher epoch of the producer id in this log: brokers refuse this one from then on; null for the newest
--   client string: The client library, where its encoding is known to be its own; else null
--   client_reason string: What shows it
WITH stretches AS (
  SELECT topic, partition, segment, sum(CASE WHEN left_out < 0 THEN 1 ELSE 0 END) OVER (
    PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset) AS stretch
  FROM segments
), sound AS (
  SELECT b.topic, b.partition, b.partition_dir, b.file_base_offset, b.position, b.producer_id, b.producer_epoch,
    b.base_offset, b.last_offset, b.base_timestamp_ms, b.max_timestamp_ms, b.record_count, b.base_sequence,
    b.last_sequence, b.is_transactional, s.stretch,
    b.producer_id = -1 AND b.base_sequence = 0 AS has_sequence_without_id
  FROM published_batches b LEFT JOIN stretches s ON s.topic = b.topic AND s.partition = b.partition
    AND s.segment = b.segment AND s.stretch > 0
  WHERE b.status IN ('ok', 'suspect') AND NOT b.is_control
), followed AS (
  SELECT *, CASE WHEN producer_id >= 0 THEN lag(last_sequence) OVER (
    PARTITION BY topic, partition, partition_dir, stretch, producer_id, producer_epoch
    ORDER BY base_offset, file_base_offset, position) END AS sequence_before
  FROM sound
), stepped AS (
  -- Sequence numbers wrap from 2^31 - 1 to 0 (DefaultRecordBatch.incrementSequence)
  SELECT *, base_sequence = 0 AND sequence_before <> 2147483647 AS is_reset,
    pmod(CAST(base_sequence AS BIGINT) - sequence_before - 1, 2147483648) AS step
  FROM followed
), grouped AS (
  SELECT topic, partition, partition_dir, producer_id, producer_epoch, has_sequence_without_id,
    min(base_offset) AS first_offset, max(last_offset) AS last_offset,
    min(CASE WHEN base_timestamp_ms >= 0 THEN base_timestamp_ms END) AS first_ms,
    max(CASE WHEN max_timestamp_ms >= 0 THEN max_timestamp_ms END) AS last_ms,
    count(*) AS batches, sum(record_count) AS records, count(*) FILTER (WHERE is_transactional) AS transactional_batches,
    min_by(base_sequence, base_offset) AS first_sequence, max_by(last_sequence, base_offset) AS last_sequence,
    count(*) FILTER (WHERE NOT is_reset AND step BETWEEN 1 AND 1073741823) AS sequence_gaps,
    coalesce(sum(CASE WHEN NOT is_reset AND step BETWEEN 1 AND 1073741823 THEN step END), 0) AS missing_sequences,
    count(*) FILTER (WHERE NOT is_reset AND step > 1073741823) AS duplicates, count(*) FILTER (WHERE is_reset) AS resets
  FROM stepped
  GROUP BY topic, partition, partition_dir, producer_id, producer_epoch, has_sequence_without_id
)
SELECT topic, partition, partition_dir, producer_id, producer_epoch, first_offset, last_offset,
  CASE WHEN first_ms < 253402300800000 THEN timestamp_millis(first_ms) END AS first_seen,
  CASE WHEN last_ms < 253402300800000 THEN timestamp_millis(last_ms) END AS last_seen,
  batches, records, transactional_batches, first_sequence, last_sequence, sequence_gaps, missing_sequences, duplicates, resets,
  CASE WHEN producer_id >= 0 THEN lead(producer_epoch) OVER (
    PARTITION BY topic, partition, partition_dir, producer_id ORDER BY producer_epoch) END AS next_epoch,
  CASE WHEN NOT has_sequence_without_id THEN NULL WHEN topic = '__consumer_offsets' THEN 'group coordinator'
    WHEN producer_epoch = 0 THEN 'KafkaJS' ELSE 'Sarama, aiokafka or franz-go' END AS client,
  CASE WHEN NOT has_sequence_without_id THEN NULL
    WHEN topic = '__consumer_offsets' THEN 'brokers write this topic'
    WHEN producer_epoch = 0 THEN 'epoch 0 and base sequence 0 without a producer id'
    ELSE 'base sequence 0 without a producer id: the Java client, librdkafka and kafka-python write -1' END AS client_reason
FROM grouped
