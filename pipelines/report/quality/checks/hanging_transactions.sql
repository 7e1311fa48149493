-- How far the log's time has moved on since the open transaction began (transaction_ages)
SELECT b.file, t.open_ms AS amount, printf(
  'position %d: producer %d, epoch %d, open since offset %d, by the clock of a %s', b.position, t.producer_id,
  t.producer_epoch, t.first_offset, t.witness) AS detail
FROM open_transactions t
JOIN log_segments s USING (topic, partition, partition_dir)
JOIN sound b ON b.file = s.file AND b.base_offset = t.first_offset AND b.producer_id = t.producer_id
WHERE t.open_ms IS NOT NULL
