-- For how long the transactions are open that hold the last stable offset of their log, in the time of the log
-- (`log_clocks`). A transaction began after the markers before it and before the markers after it, whatever its producer's
-- clock says
-- Columns: those of a log, then
--   producer_id, producer_epoch, first_offset, last_offset, records, outcome_uncertain: as in current_transactions
--   began_ms bigint: Time of its first batch, between the markers around it; null where that is not credible (`batch_times`)
--   open_ms bigint: now_ms less began_ms
--   proven_open_ms bigint: For how long it is open at least, by the brokers' clock alone: from its own log append time, else from the marker after it, to the newest; null where brokers stamped none, or their clocks disagree
--   broker_ms bigint: The newest credible time by a broker's clock; null without one
--   now_ms bigint: The time of the log
--   witness string: Which clock gave it: broker, producer or file
--   clock_certainty string: How certain it is: certain, likely or unknown
WITH first_batches AS (
  SELECT t.topic, t.partition, t.partition_dir, t.producer_id, t.producer_epoch, t.first_offset, t.last_offset, t.records,
    t.outcome_uncertain, min(b.credible_first_ms) AS first_ms,
    min(CASE WHEN b.is_by_broker THEN b.credible_first_ms END) AS appended_ms
  FROM current_transactions t LEFT JOIN batch_times b ON b.topic = t.topic AND b.partition = t.partition
    AND b.partition_dir = t.partition_dir AND b.producer_id = t.producer_id AND b.base_offset = t.first_offset
    AND NOT b.is_control
  WHERE t.holds_last_stable_offset
  GROUP BY ALL
), places AS (
  SELECT topic, partition, partition_dir, first_offset AS place, 1 AS is_start, CAST(NULL AS BIGINT) AS marker_ms, producer_id,
    producer_epoch, last_offset, records, outcome_uncertain, first_ms, appended_ms
  FROM first_batches
  UNION ALL
  SELECT m.topic, m.partition, m.partition_dir, m.base_offset, 0, m.credible_newest_ms, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM batch_times m JOIN last_stable_offsets h ON h.topic = m.topic AND h.partition = m.partition AND h.partition_dir = m.partition_dir
  WHERE m.is_marker
), between_markers AS (
  SELECT *,
    max(marker_ms) OVER (PARTITION BY topic, partition, partition_dir ORDER BY place, is_start
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ms,
    min(marker_ms) OVER (PARTITION BY topic, partition, partition_dir ORDER BY place, is_start
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS following_ms
  FROM places
), bounded AS (
  SELECT topic, partition, partition_dir, producer_id, producer_epoch, place AS first_offset, last_offset, records,
    outcome_uncertain, first_ms, before_ms, coalesce(appended_ms, following_ms) AS after_ms
  FROM between_markers WHERE is_start = 1
), aged AS (
  SELECT b.*, c.broker_ms, c.now_ms, c.witness, c.certainty AS clock_certainty,
    CASE WHEN b.first_ms IS NOT NULL THEN least(greatest(b.first_ms, coalesce(b.before_ms, b.first_ms)),
      coalesce(b.after_ms, c.now_ms)) END AS began_ms,
    CASE WHEN b.after_ms >= coalesce(b.before_ms, b.after_ms) THEN c.broker_ms - b.after_ms END AS proven_open_ms
  FROM bounded b JOIN log_clocks c ON c.topic = b.topic AND c.partition = b.partition AND c.partition_dir = b.partition_dir
)
SELECT topic, partition, partition_dir, producer_id, producer_epoch, first_offset, last_offset, records, outcome_uncertain,
  began_ms, now_ms - began_ms AS open_ms, proven_open_ms, broker_ms, now_ms, witness, clock_certainty
FROM aged
