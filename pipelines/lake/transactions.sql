-- The rows of `transactions`, log by log. Tables: batches (sound transactional batches), quarantine, ledger (as it
-- will be after the run).
--
-- A transaction is the transactional data of one producer in one log up to the producer's next marker. Data and
-- marker match by producer id alone, because newer brokers raise the marker's epoch above the data's. Two things
-- show that a transaction has ended although its marker is not seen:
--   a gap      segments that retention deleted before they were decoded, or that are left out: the marker may
--              have been there
--   an epoch   data of a higher producer epoch: the broker has ended the transaction of the old epoch
-- The outcome of such a transaction is unknown, but it does not hold back the last stable offset.
WITH logs AS (
  SELECT *, lag(coalesce(end_offset, file_base_offset - 1)) OVER log AS end_before,
    lag(file_base_offset) OVER log AS base_before,
    left_out < 0 OR lag(left_out < 0, 1, false) OVER log AS is_apart
  FROM ledger
  WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset)
), stretches AS (
  -- Stretch: segments without a gap between them. There is a gap before a segment if the one before it was
  -- already deleted when this one was first listed, or if one of both is left out
  SELECT *, sum(CASE WHEN is_apart OR (end_before + 1 < file_base_offset AND base_before < log_start_offset)
      THEN 1 ELSE 0 END)
    OVER (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset) AS stretch
  FROM logs
), last_stretches AS (
  SELECT partition_dir, topic, partition, max(stretch) AS last_stretch FROM stretches GROUP BY ALL
), events AS (
  SELECT b.topic, b.partition, s.partition_dir, s.stretch, b.producer_id, b.producer_epoch, b.base_offset,
    b.last_offset, b.record_count, b.coordinator_epoch, b.control_type, b.is_control,
    row(s.file_base_offset, b.position) AS place
  FROM batches b JOIN stretches s
    ON b.segment = s.segment AND b.generation = s.generation AND b.position < s.decoded_bytes
  WHERE NOT b.is_control OR b.control_type IN ('ABORT', 'COMMIT')
), numbered AS (
  -- closed: markers of the same producer before this batch
  SELECT *, coalesce(sum(CAST(is_control AS INTEGER)) OVER (
    PARTITION BY topic, partition, partition_dir, producer_id ORDER BY base_offset, place
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS closed
  FROM events
), with_epoch AS (
  -- a marker ends the data of the highest epoch before it
  SELECT *, CASE WHEN is_control THEN max(CASE WHEN NOT is_control THEN producer_epoch END) OVER (
    PARTITION BY topic, partition, partition_dir, producer_id, stretch, closed)
    ELSE producer_epoch END AS data_epoch
  FROM numbered
), found AS (
  SELECT topic, partition, partition_dir, producer_id, stretch, closed, data_epoch,
    coalesce(data_epoch, max(producer_epoch)) AS producer_epoch,
    min(CASE WHEN NOT is_control THEN base_offset END) AS first_offset,
    max(CASE WHEN NOT is_control THEN last_offset END) AS last_offset,
    CAST(coalesce(sum(CASE WHEN NOT is_control THEN record_count END), 0) AS BIGINT) AS records,
    max(CASE WHEN is_control THEN base_offset END) AS marker_offset,
    max(CASE WHEN is_control THEN coordinator_epoch END) AS coordinator_epoch,
    CASE max(control_type)
      WHEN 'COMMIT' THEN 'committed' WHEN 'ABORT' THEN 'aborted' ELSE 'open' END AS outcome,
    min(place) AS begins, max(CASE WHEN is_control THEN place END) AS ends
  FROM with_epoch
  GROUP BY topic, partition, partition_dir, producer_id, stretch, closed, data_epoch
), followed AS (
  SELECT f.*, l.last_stretch > f.stretch OR lead(f.producer_id) OVER (
    PARTITION BY f.topic, f.partition, f.partition_dir, f.producer_id
    ORDER BY f.stretch, f.closed, f.data_epoch NULLS LAST) IS NOT NULL AS is_over
  FROM found f JOIN last_stretches l USING (topic, partition, partition_dir)
), damage AS (
  SELECT s.topic, s.partition, s.partition_dir, row(s.file_base_offset, q.position) AS place
  FROM quarantine q JOIN stretches s
    ON q.segment = s.segment AND q.generation = s.generation AND q.position < s.decoded_bytes
), last_damage AS (
  SELECT f.topic, f.partition, f.partition_dir, f.producer_id, f.begins, max(d.place) AS place
  FROM followed f JOIN damage d
    ON d.topic = f.topic AND d.partition = f.partition AND d.partition_dir = f.partition_dir
    AND d.place > f.begins AND (f.ends IS NULL OR d.place < f.ends)
  GROUP BY ALL
)
SELECT f.topic, f.partition, f.partition_dir, f.producer_id, f.producer_epoch, f.first_offset, f.last_offset,
  f.records, f.marker_offset, f.coordinator_epoch, f.outcome,
  d.place IS NOT NULL OR (f.outcome = 'open' AND f.is_over) AS outcome_uncertain,
  f.outcome = 'open' AND NOT f.is_over AS holds_last_stable_offset
FROM followed f LEFT JOIN last_damage d
  ON d.topic = f.topic AND d.partition = f.partition AND d.partition_dir = f.partition_dir
  AND d.producer_id = f.producer_id AND d.begins = f.begins
