-- error, max, 900000 ms: How far the log has moved on since a transaction began that holds back the last stable offset
-- The time since is open_ms of transaction_ages; the threshold is transaction.max.timeout.ms of Kafka
SELECT b.file, t.open_ms AS amount, printf(
  'position %d: producer %d, epoch %d, open since offset %d, by the clock of a %s', b.position, t.producer_id,
  t.producer_epoch, t.first_offset, t.witness) AS detail
FROM open_transactions t
JOIN log_segments s USING (topic, partition, partition_dir)
JOIN sound b ON b.file = s.file AND b.base_offset = t.first_offset AND b.producer_id = t.producer_id
WHERE t.open_ms IS NOT NULL
