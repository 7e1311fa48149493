-- What each producer id and epoch wrote into each log, and whether its sequence numbers follow each other. Batches of
-- producers without an id (-1) are one row for each way of encoding. Sequence numbers are compared within a stretch
-- of the log (log_stretches), in the order of the files. Where the log cleaner removed batches, or bytes are damaged, their
-- sequence numbers are a gap too
-- Columns: those of a log, then
--   producer_id, producer_epoch: as in sequence_steps
--   first_offset bigint: Base offset of the first batch
--   last_offset bigint: Last offset of the last batch
--   first_seen timestamp: Lowest timestamp of a batch's first record; of the years 1970 to 9999; null without one
--   last_seen timestamp: Highest timestamp; of the years 1970 to 9999; null without one
--   batches bigint: Sound data batches
--   records bigint: Their records
--   transactional_batches bigint: Those that belong to a transaction
--   first_sequence int: Base sequence of the first batch; -1 none
--   last_sequence int: Last sequence of the last batch; -1 none
--   sequence_gaps bigint: Batches whose base sequence is above the one that must follow
--   missing_sequences bigint: Sequence numbers in these gaps
--   duplicates bigint: Batches whose base sequence is not above the last sequence before
--   resets bigint: Batches that begin with sequence 0 again in the same epoch, but for the wrap after 2^31 - 1
--   unexplained_steps bigint: Gaps, duplicates and resets that neither damage nor the log cleaner explains
--   next_epoch smallint: The next higher epoch of the producer id in this log; null for the newest
--   client string: The client library, where its encoding is known to be its own; else null
--   client_reason string: What shows it
WITH inner_times AS (
  -- batches whose header does not have the time of their first record: the record has it
  SELECT r.topic, r.partition, r.segment, r.batch_position, min_by(r.timestamp_ms, r.offset) AS first_ms
  FROM published_records r JOIN counted_batches b ON b.topic = r.topic AND b.partition = r.partition AND b.segment = r.segment
    AND b.position = r.batch_position AND b.first_timestamp_ms IS NULL AND NOT b.is_control
  GROUP BY r.topic, r.partition, r.segment, r.batch_position
), stepped AS (
  SELECT s.*, coalesce(s.first_timestamp_ms, t.first_ms) AS began_ms,
    s.producer_id = -1 AND s.base_sequence = 0 AS has_sequence_without_id,
    -- the place in the log: a segment has less than 10^18 bytes
    CAST(s.file_base_offset AS DECIMAL(19, 0)) * CAST(1000000000000000000 AS DECIMAL(19, 0)) + CAST(s.position AS DECIMAL(19, 0)) AS place
  FROM sequence_steps s LEFT JOIN inner_times t ON t.topic = s.topic AND t.partition = s.partition
    AND t.segment = s.segment AND t.batch_position = s.position
), grouped AS (
  SELECT topic, partition, partition_dir, producer_id, producer_epoch, has_sequence_without_id,
    coalesce(min(CASE WHEN NOT is_misplaced THEN base_offset END), min(base_offset)) AS first_offset,
    coalesce(max(CASE WHEN NOT is_misplaced THEN last_offset END), max(last_offset)) AS last_offset,
    min(CASE WHEN began_ms BETWEEN 0 AND 253402300799999 THEN began_ms END) AS first_ms,
    max(CASE WHEN max_timestamp_ms BETWEEN 0 AND 253402300799999 THEN max_timestamp_ms END) AS last_ms,
    count(*) AS batches, CAST(sum(record_count) AS BIGINT) AS records, count(*) FILTER (WHERE is_transactional) AS transactional_batches,
    min_by(base_sequence, place) AS first_sequence, max_by(last_sequence, place) AS last_sequence,
    count(*) FILTER (WHERE step = 'gap') AS sequence_gaps, CAST(sum(missing_sequences) AS BIGINT) AS missing_sequences,
    count(*) FILTER (WHERE step = 'duplicate') AS duplicates, count(*) FILTER (WHERE step = 'reset') AS resets,
    count(*) FILTER (WHERE step <> 'next' AND cause IS NULL) AS unexplained_steps
  FROM stepped
  GROUP BY topic, partition, partition_dir, producer_id, producer_epoch, has_sequence_without_id
)
SELECT topic, partition, partition_dir, producer_id, producer_epoch, first_offset, last_offset,
  timestamp_millis(first_ms) AS first_seen, timestamp_millis(last_ms) AS last_seen,
  batches, records, transactional_batches, first_sequence, last_sequence, sequence_gaps, missing_sequences, duplicates, resets,
  unexplained_steps,
  CASE WHEN producer_id >= 0 THEN lead(producer_epoch) OVER (
    PARTITION BY topic, partition, partition_dir, producer_id ORDER BY producer_epoch) END AS next_epoch,
  CASE WHEN NOT has_sequence_without_id THEN NULL WHEN topic = '__consumer_offsets' THEN 'group coordinator'
    WHEN producer_epoch = 0 THEN 'KafkaJS' ELSE 'Sarama, aiokafka or franz-go' END AS client,
  CASE WHEN NOT has_sequence_without_id THEN NULL
    WHEN topic = '__consumer_offsets' THEN 'brokers write this topic'
    WHEN producer_epoch = 0 THEN 'epoch 0 and base sequence 0 without a producer id'
    ELSE 'base sequence 0 without a producer id: the Java client, librdkafka and kafka-python write -1' END AS client_reason
FROM grouped
