-- What the checks read: the rows of a lake, with numbers for logs and segments in place of long names.
-- Tables: segments, batches, quarantine, transactions (Arrow). Offsets and timestamps are of any size in a damaged
-- header: HUGEINT, so that a difference of two does not overflow.

-- A log is one copy of a partition. Segments that are left out are not here
CREATE TABLE log_segments AS
SELECT s.*, t.next_file_base_offset, t.stretch, dense_rank() OVER (ORDER BY s.topic, s.partition, s.partition_dir) AS log,
  row_number() OVER (ORDER BY s.topic, s.partition, s.partition_dir, s.file_base_offset) AS file
FROM segments s JOIN log_stretches t USING (topic, partition, partition_dir, segment)
QUALIFY coalesce(s.left_out, 0) >= 0;

-- What the files of each log are, whatever of it was decoded. in_part: segments of which records, or all, are left out
CREATE TABLE log_files AS
SELECT topic, partition, partition_dir, sum(length) AS bytes, count(*) FILTER (left_out <> 0) AS in_part
FROM segments GROUP BY ALL;

CREATE TABLE log_batches AS
SELECT s.log, s.file, s.stretch, b.* EXCLUDE (topic, partition, segment, base_offset, last_offset,
    base_timestamp_ms, max_timestamp_ms),
  CAST(b.base_offset AS HUGEINT) AS base_offset, CAST(b.last_offset AS HUGEINT) AS last_offset,
  CAST(b.base_timestamp_ms AS HUGEINT) AS base_timestamp_ms,
  CAST(b.max_timestamp_ms AS HUGEINT) AS max_timestamp_ms
FROM batches b JOIN log_segments s USING (topic, partition, segment);

CREATE TABLE log_damage AS
SELECT s.log, s.file, s.stretch, q.* EXCLUDE (topic, partition, segment)
FROM quarantine q JOIN log_segments s USING (topic, partition, segment);

-- Sound batches with what their neighbours in the log say. damages: damaged ranges before the batch, so that two
-- batches with the same number have no damage between them. file numbers rise with file_base_offset in a log
CREATE TABLE sound AS
SELECT s.log, s.file, s.stretch, b.* EXCLUDE (topic, partition, partition_dir, segment, file_base_offset, stretch,
    base_offset, last_offset, base_timestamp_ms, max_timestamp_ms, damaged_ranges, is_misplaced),
  CAST(b.base_offset AS HUGEINT) AS base_offset, CAST(b.last_offset AS HUGEINT) AS last_offset,
  CAST(b.base_timestamp_ms AS HUGEINT) AS base_timestamp_ms,
  CAST(b.max_timestamp_ms AS HUGEINT) AS max_timestamp_ms, b.damaged_ranges AS damages, b.is_misplaced AS misplaced
FROM sound_batches b JOIN log_segments s USING (topic, partition, segment);

CREATE TABLE gaps AS
SELECT s.file, g.first_offset, g.last_offset, g.offsets, g.cause
FROM offset_gaps g JOIN log_segments s USING (topic, partition, partition_dir, segment)
WHERE g.place = 'between batches';

-- What is lost of each log. misplaced: offsets whose records are there, under other offsets
CREATE TABLE lost AS
SELECT topic, partition, partition_dir, sum(max_records) FILTER (cause <> 'wrong_base_offset') AS offsets,
  sum(max_records) FILTER (cause = 'wrong_base_offset') AS misplaced,
  bool_or(last_lost IS NULL AND cause <> 'wrong_base_offset') AS is_end_lost,
  sum(max_records) FILTER (cause = 'missing_start') AS at_start
FROM lost_offsets GROUP BY ALL;

CREATE TABLE steps AS
SELECT s.file, t.position, t.producer_id, t.producer_epoch, t.base_sequence, t.sequence_before, t.step, t.cause
FROM sequence_steps t JOIN log_segments s USING (topic, partition, segment)
WHERE t.step <> 'next';

CREATE TABLE log_times AS
SELECT s.file, t.position, t.is_control, t.newest_ms, t.unit, t.modified_ms, t.credible_newest_ms
FROM batch_times t JOIN log_segments s USING (topic, partition, segment);

CREATE TABLE open_transactions AS FROM transaction_ages;
