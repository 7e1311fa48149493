-- What is wrong with the files next to segments, as decode --with-indexes read them: files that are missing or can't be
-- read, entries that point nowhere, entries that disagree with the batches, and entries that are missing. Segments of which
-- no batch is in the lake are not compared. Each segment but the first of a log has a .snapshot of its first offset. An entry that no lookup is led astray by is right, whatever its offset is
-- Columns: those of a log, then
--   file string: Canonical URI of the file
--   entry int: Number of the entry in the file, from 0; null where the problem is of the file, or an entry is missing
--   problem string: unreadable: the file, or an entry of it, is not as it has to be; points_nowhere: at that position no batch begins, or no batch has that offset; disagrees: the batches say something else; missing: the file, or an entry for something that the batches have
--   detail string: What was expected, and what was found
WITH known AS (
  SELECT segment, partition_dir, decoded_bytes, left_out = 0 AND damaged = 0 AS whole, log_start_offset,
    lead(file_base_offset) OVER (PARTITION BY partition_dir ORDER BY file_base_offset) AS next_file_base_offset
  FROM segments WHERE left_out >= 0
), spans AS (
  SELECT *, lead(start_offset) OVER (PARTITION BY topic, partition, partition_dir ORDER BY entry) AS end_offset
  FROM leader_epochs WHERE error IS NULL
), starts AS (
  -- a broker has no entries for what retention deleted, and forgets epochs before what DeleteRecords deleted
  SELECT k.partition_dir, greatest(max(k.log_start_offset), max(e.start_offset)) AS log_start
  FROM known k LEFT JOIN (SELECT partition_dir, min(start_offset) AS start_offset FROM spans GROUP BY partition_dir) e
    ON e.partition_dir = k.partition_dir
  GROUP BY k.partition_dir
), kept AS (
  SELECT k.segment, k.next_file_base_offset IS NOT NULL AS closed, b.log_start
  FROM known k JOIN starts b ON b.partition_dir = k.partition_dir
  WHERE coalesce(k.next_file_base_offset > b.log_start, true)
), sound AS (
  SELECT * FROM (
    SELECT b.topic, b.partition, b.partition_dir, b.segment, b.position, b.base_offset, b.last_offset, b.leader_epoch,
      b.producer_id, b.producer_epoch, b.is_control, b.is_misplaced, b.max_timestamp_ms,
      max(b.max_timestamp_ms) OVER (PARTITION BY b.topic, b.partition, b.segment ORDER BY b.position) AS newest,
      max(b.max_timestamp_ms) OVER (PARTITION BY b.topic, b.partition, b.segment) AS highest,
      max(CASE WHEN b.is_misplaced THEN 1 ELSE 0 END) OVER (PARTITION BY b.topic, b.partition, b.segment) AS misplaced
    FROM sound_batches b
  ) WHERE NOT is_misplaced
), bounds AS (
  SELECT s.topic, s.partition, s.segment, min(s.base_offset) AS first_offset, max(s.last_offset) AS last_offset,
    k.whole AND max(s.misplaced) = 0 AS whole
  FROM sound s JOIN known k ON k.segment = s.segment GROUP BY s.topic, s.partition, s.segment, k.whole
), places AS (
  SELECT o.topic, o.partition, o.partition_dir, o.file, o.entry,
    CASE WHEN s.base_offset > o.offset THEN 'disagrees' ELSE 'points_nowhere' END AS problem,
    CASE WHEN b.position IS NULL THEN 'expected a batch at position ' || o.position || ', found none'
      WHEN s.base_offset > o.offset
        THEN 'expected offset ' || s.base_offset || ' or more at position ' || o.position || ', found ' || o.offset
      ELSE 'expected an offset up to ' || w.last_offset || ', found ' || o.offset
    END AS detail
  FROM offset_index o JOIN known k ON k.segment = o.segment
  LEFT JOIN published_batches b ON b.topic = o.topic AND b.partition = o.partition AND b.segment = o.segment
    AND b.position = o.position
  LEFT JOIN sound s ON s.topic = o.topic AND s.partition = o.partition AND s.segment = o.segment
    AND s.position = o.position
  LEFT JOIN bounds w ON w.topic = o.topic AND w.partition = o.partition AND w.segment = o.segment
  WHERE o.error IS NULL AND o.position < k.decoded_bytes AND ((b.position IS NULL AND k.whole)
    OR s.base_offset > o.offset OR (w.whole AND o.offset > w.last_offset))
  UNION ALL
  SELECT o.topic, o.partition, o.partition_dir, o.file, o.entry, 'points_nowhere',
    'expected a position before ' || k.decoded_bytes || ', where the segment ends, found ' || o.position
  FROM offset_index o JOIN known k ON k.segment = o.segment
  WHERE o.error IS NULL AND o.position >= k.decoded_bytes
), times AS (
  SELECT t.topic, t.partition, t.partition_dir, t.file, t.entry,
    CASE WHEN t.offset < b.first_offset OR t.offset > b.last_offset THEN 'points_nowhere' ELSE 'disagrees' END AS problem,
    CASE WHEN t.offset < b.first_offset OR t.offset > b.last_offset
      THEN 'expected an offset from ' || b.first_offset || ' to ' || b.last_offset || ', found ' || t.offset
      WHEN t.timestamp_ms > s.newest
        THEN 'expected timestamp ' || s.newest || ' at offset ' || t.offset || ', found ' || t.timestamp_ms
      ELSE 'expected timestamp ' || s.newest || ' or more up to offset ' || t.offset || ', found ' || t.timestamp_ms
    END AS detail
  FROM time_index t JOIN bounds b ON b.topic = t.topic AND b.partition = t.partition AND b.segment = t.segment
  LEFT JOIN sound s ON s.topic = t.topic AND s.partition = t.partition AND s.segment = t.segment
    AND s.base_offset <= t.offset AND s.last_offset >= t.offset
  WHERE t.error IS NULL
    AND (s.newest > t.timestamp_ms
      OR (b.whole AND (t.offset < b.first_offset OR t.offset > b.last_offset OR s.newest < t.timestamp_ms)))
), read_folders AS (
  SELECT topic, partition, partition_dir FROM offset_index
  UNION SELECT topic, partition, partition_dir FROM time_index
  UNION SELECT topic, partition, partition_dir FROM aborted_transactions
  UNION SELECT topic, partition, partition_dir FROM producer_snapshots
  UNION SELECT topic, partition, partition_dir FROM leader_epochs
), last_times AS (
  SELECT n.topic, n.partition, n.partition_dir, substring(n.segment, 1, length(n.segment) - 4) || '.timeindex' AS file,
    CAST(NULL AS INT) AS entry, 'missing' AS problem,
    'expected an entry for timestamp ' || n.highest || ' at offset ' || n.first_offset || ' or later, found none' AS detail
  FROM (
    SELECT s.topic, s.partition, s.partition_dir, s.segment, s.highest, min(s.base_offset) AS first_offset
    FROM sound s JOIN kept k ON k.segment = s.segment AND k.closed
    JOIN read_folders i ON i.topic = s.topic AND i.partition = s.partition AND i.partition_dir = s.partition_dir
    WHERE s.max_timestamp_ms = s.highest AND s.highest > 0 -- an entry for 0 may be all zeros, as space without entries is
    GROUP BY s.topic, s.partition, s.partition_dir, s.segment, s.highest
  ) n
  LEFT JOIN (
    SELECT segment, max(offset) AS indexed, max(timestamp_ms) AS latest, count(error) AS errors FROM time_index GROUP BY segment
  ) l ON l.segment = n.segment
  WHERE coalesce(l.errors, 0) = 0 AND coalesce(l.indexed < n.first_offset AND l.latest < n.highest, true)
), aborted AS (
  SELECT a.topic, a.partition, a.partition_dir, a.file, a.entry, 'disagrees' AS problem,
    'expected an aborted transaction of producer ' || a.producer_id || ' with its marker at offset ' || a.last_offset
      || ', found none' AS detail
  FROM aborted_transactions a JOIN bounds b
    ON b.topic = a.topic AND b.partition = a.partition AND b.segment = a.segment
  LEFT JOIN current_transactions t ON t.topic = a.topic AND t.partition = a.partition
    AND t.partition_dir = a.partition_dir AND t.producer_id = a.producer_id AND t.marker_offset = a.last_offset
    AND t.outcome = 'aborted'
  LEFT JOIN sound s ON s.topic = a.topic AND s.partition = a.partition AND s.segment = a.segment
    AND s.base_offset <= a.last_offset AND s.last_offset >= a.last_offset
  WHERE a.error IS NULL AND t.producer_id IS NULL AND (b.whole OR s.position IS NOT NULL)
  UNION ALL
  SELECT t.topic, t.partition, t.partition_dir, substring(s.segment, 1, length(s.segment) - 4) || '.txnindex', NULL, 'missing',
    'expected an entry for the transaction of producer ' || t.producer_id || ' that was aborted at offset '
      || t.marker_offset || ', found none'
  FROM current_transactions t
  JOIN sound s ON s.topic = t.topic AND s.partition = t.partition AND s.partition_dir = t.partition_dir
    AND s.base_offset <= t.marker_offset AND s.last_offset >= t.marker_offset
  -- the cleaner drops entries of which no data is left
  JOIN kept k ON k.segment = s.segment AND t.last_offset >= k.log_start
  JOIN read_folders i
    ON i.topic = t.topic AND i.partition = t.partition AND i.partition_dir = t.partition_dir
  LEFT JOIN aborted_transactions a ON a.topic = t.topic AND a.partition = t.partition
    AND a.partition_dir = t.partition_dir AND a.producer_id = t.producer_id AND a.last_offset = t.marker_offset
  WHERE t.outcome = 'aborted' AND t.first_offset IS NOT NULL AND a.producer_id IS NULL
), epochs AS (
  -- but for batches whose epoch, which no checksum covers, is not between those before and after, which do not fall
  SELECT topic, partition, partition_dir, leader_epoch, min(base_offset) AS first_offset, max(last_offset) AS last_offset
  FROM (SELECT *, lag(leader_epoch) OVER log AS before, lead(leader_epoch) OVER log AS after FROM sound
    WINDOW log AS (PARTITION BY topic, partition, partition_dir ORDER BY base_offset, position))
  WHERE leader_epoch >= 0 AND coalesce(before < 0 OR before > after OR leader_epoch BETWEEN before AND after, true)
  GROUP BY topic, partition, partition_dir, leader_epoch
), led AS (
  SELECT s.topic, s.partition, s.partition_dir, s.file, s.entry, 'disagrees' AS problem,
    'expected offsets of epoch ' || s.leader_epoch || ' from ' || s.start_offset || ' on'
      || coalesce(' and before ' || s.end_offset, '') || ', found ' || e.first_offset || ' to ' || e.last_offset AS detail
  FROM spans s JOIN epochs e ON e.topic = s.topic AND e.partition = s.partition
    AND e.partition_dir = s.partition_dir AND e.leader_epoch = s.leader_epoch
  WHERE e.last_offset >= s.end_offset OR (s.entry > 0 AND e.first_offset < s.start_offset)
  UNION ALL
  SELECT e.topic, e.partition, e.partition_dir, e.partition_dir || '/leader-epoch-checkpoint', NULL, 'missing',
    'expected an entry for epoch ' || e.leader_epoch || ', which begins at offset ' || e.first_offset || ', found none'
  FROM epochs e JOIN read_folders f
    ON f.topic = e.topic AND f.partition = e.partition AND f.partition_dir = e.partition_dir
  LEFT JOIN spans s ON s.topic = e.topic AND s.partition = e.partition AND s.partition_dir = e.partition_dir
    AND s.leader_epoch = e.leader_epoch
  JOIN starts b ON b.partition_dir = e.partition_dir
  WHERE s.leader_epoch IS NULL AND e.last_offset >= b.log_start
), snapshots AS (
  -- a broker refuses a snapshot as a whole
  SELECT * FROM producer_snapshots WHERE file NOT IN (SELECT file FROM producer_snapshots WHERE error IS NOT NULL)
), noted AS (
  SELECT p.topic, p.partition, p.partition_dir, p.file, p.producer_id, p.last_offset, p.snapshot_offset,
    max(b.last_offset) AS newest
  FROM snapshots p JOIN sound b ON b.topic = p.topic AND b.partition = p.partition
    AND b.partition_dir = p.partition_dir AND b.producer_id = p.producer_id AND NOT b.is_control
    AND b.last_offset < p.snapshot_offset
  GROUP BY p.topic, p.partition, p.partition_dir, p.file, p.producer_id, p.last_offset, p.snapshot_offset
), producers_of AS (
  SELECT topic, partition, partition_dir, file, CAST(NULL AS INT) AS entry, 'disagrees' AS problem,
    'expected last offset ' || newest || ' of producer ' || producer_id || ' before offset ' || snapshot_offset
      || ', found ' || last_offset AS detail
  FROM noted WHERE last_offset >= 0 AND newest > last_offset
  UNION ALL
  SELECT topic, partition, partition_dir, file, NULL, 'disagrees',
    'expected a last offset below ' || snapshot_offset || ' of producer ' || producer_id || ', found ' || last_offset
  FROM snapshots WHERE last_offset >= snapshot_offset
), unreadable AS (
  SELECT topic, partition, partition_dir, file, entry, error FROM offset_index WHERE error IS NOT NULL
  UNION ALL
  SELECT topic, partition, partition_dir, file, entry, error FROM time_index WHERE error IS NOT NULL
  UNION ALL
  SELECT topic, partition, partition_dir, file, entry, error FROM aborted_transactions WHERE error IS NOT NULL
  UNION ALL
  SELECT topic, partition, partition_dir, file, CAST(NULL AS INT), error FROM producer_snapshots WHERE error IS NOT NULL
  UNION ALL
  SELECT topic, partition, partition_dir, file, entry, error FROM leader_epochs WHERE error IS NOT NULL
)
SELECT topic, partition, partition_dir, file, entry,
  CASE WHEN error = 'the file is missing' THEN 'missing' ELSE 'unreadable' END AS problem, error AS detail
FROM unreadable
UNION ALL
SELECT * FROM places
UNION ALL
SELECT * FROM times
UNION ALL
SELECT * FROM last_times
UNION ALL
SELECT * FROM aborted
UNION ALL
SELECT * FROM led
UNION ALL
SELECT * FROM producers_of
