-- How far the log's timestamps have moved on since the open transaction began
WITH logs AS (
  SELECT log, any_value(topic) AS topic, any_value(partition) AS partition, any_value(partition_dir) AS partition_dir,
    max(transactions_generation) AS generation
  FROM log_segments GROUP BY log
), latest AS (
  SELECT log, max(max_timestamp_ms) AS reached FROM sound WHERE max_timestamp_ms < 1000000000000000 GROUP BY log
)
SELECT b.file, l.reached - b.base_timestamp_ms AS amount, printf(
  'position %d: producer %d, epoch %d, open since offset %d', b.position, t.producer_id, t.producer_epoch,
  t.first_offset) AS detail
FROM transactions t
JOIN logs USING (topic, partition, partition_dir, generation)
JOIN latest l USING (log)
JOIN sound b ON b.log = l.log AND b.base_offset = t.first_offset AND b.producer_id = t.producer_id
WHERE t.outcome = 'open' AND t.holds_last_stable_offset AND b.base_timestamp_ms >= 0
