-- What the checks read: the published rows of a lake, with numbers for logs and segments in place of long names.
-- Tables: segments, batches, quarantine, transactions (Arrow). Offsets and timestamps are of any size in a damaged
-- header: HUGEINT, so that a difference of two does not overflow.

-- A log is one copy of a partition. Stretch: segments between which retention deleted nothing before they were
-- decoded, and none is left out (the same rule as in transactions.sql). Segments that are left out are not here
CREATE TABLE log_segments AS
WITH ordered AS (
  SELECT *, lag(coalesce(end_offset, file_base_offset - 1)) OVER log AS end_before,
    lag(file_base_offset) OVER log AS base_before,
    left_out < 0 OR lag(left_out < 0, 1, false) OVER log AS is_apart
  FROM segments WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset)
)
SELECT * EXCLUDE (is_apart), dense_rank() OVER (ORDER BY topic, partition, partition_dir) AS log,
  row_number() OVER (ORDER BY topic, partition, partition_dir, file_base_offset) AS file,
  sum(CASE WHEN is_apart OR (end_before + 1 < file_base_offset AND base_before < log_start_offset) THEN 1 ELSE 0 END)
    OVER (PARTITION BY topic, partition, partition_dir ORDER BY file_base_offset) AS stretch
FROM ordered
QUALIFY coalesce(left_out, 0) >= 0;

-- What the files of each log are, whatever of it was decoded. in_part: segments of which records, or all, are left out
CREATE TABLE log_files AS
SELECT topic, partition, partition_dir, sum(length) AS bytes, count(*) FILTER (left_out <> 0) AS in_part
FROM segments GROUP BY ALL;

CREATE TABLE log_batches AS
SELECT s.log, s.file, s.stretch, b.* EXCLUDE (topic, partition, segment, generation, base_offset, last_offset,
    base_timestamp_ms, max_timestamp_ms),
  CAST(b.base_offset AS HUGEINT) AS base_offset, CAST(b.last_offset AS HUGEINT) AS last_offset,
  CAST(b.base_timestamp_ms AS HUGEINT) AS base_timestamp_ms,
  CAST(b.max_timestamp_ms AS HUGEINT) AS max_timestamp_ms
FROM batches b JOIN log_segments s USING (topic, partition, segment, generation)
WHERE b.position < s.decoded_bytes;

CREATE TABLE log_damage AS
SELECT s.log, s.file, s.stretch, q.* EXCLUDE (topic, partition, segment, generation)
FROM quarantine q JOIN log_segments s USING (topic, partition, segment, generation)
WHERE q.position < s.decoded_bytes;

-- Sound batches with what their neighbours in the log say. misplaced: the base offset contradicts the file's name, or
-- neighbours that agree with each other. damages: damaged ranges before the batch, so that two
-- batches with the same number have no damage between them. file numbers rise with file_base_offset in a log
CREATE TABLE sound AS
WITH places AS (
  SELECT * FROM log_batches WHERE status IN ('ok', 'suspect')
  UNION ALL BY NAME SELECT log, file, stretch, position, true AS is_damage FROM log_damage
), counted AS (
  SELECT *, count(is_damage) OVER (PARTITION BY log, stretch ORDER BY file, position) AS damages FROM places
), neighbours AS (
  SELECT * EXCLUDE (is_damage),
    lag(last_offset) OVER log AS last_before, lead(base_offset) OVER log AS base_after,
    lag(leader_epoch) OVER log AS epoch_before, lead(leader_epoch) OVER log AS epoch_after,
    lag(damages) OVER log AS damages_before
  FROM counted WHERE is_damage IS NULL
  WINDOW log AS (PARTITION BY log, stretch ORDER BY file, position)
)
SELECT b.*, coalesce(b.base_offset < s.file_base_offset OR (last_before < base_after
  AND NOT (b.base_offset > last_before AND b.last_offset < base_after)), false) AS misplaced
FROM neighbours b JOIN log_segments s USING (file);

CREATE TABLE log_times AS
SELECT s.file, t.position, t.is_control, t.newest_ms, t.unit, t.modified_ms, t.credible_newest_ms
FROM batch_times t JOIN log_segments s USING (topic, partition, segment);

CREATE TABLE open_transactions AS FROM transaction_ages;

-- The log cleaner leaves batches that span more offsets than they hold records, and delete horizons. A compacted log
-- that shows neither can't be distinguished from one that lost offsets
CREATE TABLE compacted AS
SELECT DISTINCT log FROM log_batches
WHERE status = 'ok' AND (last_offset - base_offset + 1 > record_count OR delete_horizon_ms IS NOT NULL)
UNION SELECT DISTINCT log FROM log_segments WHERE topic IN ('__consumer_offsets', '__transaction_state');
