-- The record times of each batch that counts, whose clock gave them, and whether they are credible. With log append time the
-- max timestamp is the time of every record (KIP-32); with create time the base timestamp is the time of the first one,
-- but a delete horizon lies in its place where one is set (KIP-534). A time is credible in milliseconds, at most an
-- hour (message.timestamp.after.max.ms of Kafka 4) after the modification of its file, and a broker's not before 2011
-- Columns: those of a segment, then
--   file_base_offset, position, base_offset, producer_id, is_control: as in counted_batches
--   is_marker boolean: A marker that ends a transaction
--   is_by_broker boolean: The times are by a broker's clock: log append time, or a control batch. Else by a producer's
--   first_ms bigint: Time of the first record, as stored (`counted_batches`); null where the header does not have it
--   newest_ms bigint: Highest time of a record, as stored; -1 none
--   unit string: Unit of newest_ms: milliseconds, as Kafka stores them, or one of `timestamp_units`
--   modified_ms bigint: Modification time of the file; null before 2011, when there was no Kafka: it proves nothing
--   credible_first_ms bigint: first_ms where it is credible; else null
--   credible_newest_ms bigint: newest_ms where it is credible; else null
WITH timed AS (
  SELECT b.topic, b.partition, b.partition_dir, b.segment, b.file_base_offset, b.position, b.base_offset, b.producer_id,
    b.is_control, b.is_control AND b.is_transactional AND coalesce(b.control_type IN ('ABORT', 'COMMIT'), false) AS is_marker,
    b.timestampType = 1 OR b.is_control AS is_by_broker,
    b.first_timestamp_ms AS first_ms, b.max_timestamp_ms AS newest_ms, s.modified_ms
  FROM counted_batches b JOIN log_stretches s ON s.topic = b.topic AND s.partition = b.partition AND s.segment = b.segment
), bounded AS (
  SELECT *, CASE WHEN is_by_broker THEN $FIRST_KAFKA_MS ELSE 0 END AS earliest_ms,
    coalesce(modified_ms + $MAX_AHEAD_MS, 99999999999999) AS latest_ms
  FROM timed
)
SELECT t.topic, t.partition, t.partition_dir, t.segment, t.file_base_offset, t.position, t.base_offset, t.producer_id,
  t.is_control, t.is_marker, t.is_by_broker, t.first_ms, t.newest_ms, coalesce(n.unit, 'milliseconds') AS unit, t.modified_ms,
  CASE WHEN f.unit IS NULL AND t.first_ms BETWEEN t.earliest_ms AND t.latest_ms THEN t.first_ms END AS credible_first_ms,
  CASE WHEN n.unit IS NULL AND t.newest_ms BETWEEN t.earliest_ms AND t.latest_ms THEN t.newest_ms END AS credible_newest_ms
FROM bounded t
LEFT JOIN timestamp_units n ON t.newest_ms BETWEEN n.lowest AND n.highest
LEFT JOIN timestamp_units f ON t.first_ms BETWEEN f.lowest AND f.highest
