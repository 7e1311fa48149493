-- What time it was where a log ends: its newest credible timestamp (`batch_times`), with the modification time of its
-- files as a second witness. "Now" of `hanging_transactions`
-- Columns: those of a log, then
--   now_ms bigint: The time; null where nothing gives one
--   witness string: Which clock gave it: broker: log append time, or a control batch; producer: create time; file: the modification time, as no timestamp is credible; null
--   certainty string: certain: a broker's clock; likely: a producer's, and the modification time is within an hour of it; unknown
--   broker_ms bigint: The newest credible time by a broker's clock; null without one
--   modified_ms bigint: The latest modification time of its files; null without one from 2011 on
WITH files AS (
  SELECT topic, partition, partition_dir, max(modified_ms) AS modified_ms
  FROM log_stretches GROUP BY topic, partition, partition_dir
), newest AS (
  SELECT topic, partition, partition_dir, max(credible_newest_ms) AS newest_ms,
    max(CASE WHEN is_by_broker THEN credible_newest_ms END) AS broker_ms
  FROM batch_times GROUP BY topic, partition, partition_dir
), witnessed AS (
  SELECT f.topic, f.partition, f.partition_dir, n.newest_ms, n.broker_ms, f.modified_ms, n.newest_ms = n.broker_ms AS is_of_broker,
    n.newest_ms IS NOT NULL AS has_newest, f.modified_ms IS NOT NULL AS has_file,
    abs(f.modified_ms - n.newest_ms) <= $MAX_AHEAD_MS AS is_confirmed_by_file
  FROM files f LEFT JOIN newest n ON n.topic = f.topic AND n.partition = f.partition AND n.partition_dir = f.partition_dir
)
SELECT topic, partition, partition_dir, coalesce(newest_ms, modified_ms) AS now_ms, nullif($WITNESS, '') AS witness,
  $CLOCK_CERTAINTY AS certainty, broker_ms, modified_ms
FROM witnessed
