-- What compaction would do to each log, by its committed records: versions of keys, bytes that it would free, now and
-- later, tombstones. Bytes are those of records (size_bytes), before compression. The cleaner takes whole segments from
-- the start of a log, up to the first that is active, has the last stable offset, or is too young
-- (LogCleanerManager.cleanableOffsets). A log without a committed record has a row of zeros, which says what holds the cleaner
-- Parameters:
--   at_ms bigint DEFAULT NULL: ms since 1970 that count as now
--   min_compaction_lag_ms bigint DEFAULT NULL: min.compaction.lag.ms; else that of each topic (`log_settings`), or 0
-- Columns: those of a log, then
--   cleanup_policy string: cleanup.policy of the topic; null where it is not known
--   records bigint: Committed records
--   record_bytes bigint: Their bytes
--   null_key_records bigint: Records without a key: the cleaner removes them
--   keys bigint: Different keys
--   versions_per_key double: Records with a key for each key
--   most_versions bigint: Records of the key that has the most
--   superseded_records bigint: Records that a later one of the same key replaces
--   superseded_bytes bigint: Their bytes: what compaction would free, now and later
--   freed_now_records bigint: Those that the next cleaning removes
--   freed_now_bytes bigint: Their bytes
--   freed_later_bytes bigint: Bytes that a later cleaning frees
--   first_uncleanable_offset bigint: Base offset of the first segment that the cleaner does not touch
--   held_by string: Why: active segment; open transaction; min.compaction.lag.ms: it is too young
--   tombstones bigint: Keys whose last record is a tombstone
--   expired_tombstones bigint: Those that the next cleaning removes
--   first_dirty_offset bigint: The first offset whose key came before; null where no key repeats
--   unread_records bigint: As in `log_settings`: cleanup.policy and min.compaction.lag.ms of the topic may be others
WITH aged AS (
  SELECT t.*, s.cleanup_policy, coalesce(s.unread_records, 0) AS unread_records, h.last_stable_offset, coalesce(min_compaction_lag_ms, s.topic_compaction_lag_ms, 0) > 0
      AND CAST(t.largest_timestamp_ms AS DECIMAL(38, 0)) > CAST(coalesce(at_ms, unix_millis(current_timestamp)) AS DECIMAL(38, 0))
        - coalesce(min_compaction_lag_ms, s.topic_compaction_lag_ms, 0) AS is_young
  FROM segment_times t LEFT JOIN log_settings s ON s.topic = t.topic AND s.partition = t.partition
    AND s.partition_dir = t.partition_dir
  LEFT JOIN last_stable_offsets h ON h.topic = t.topic AND h.partition = t.partition AND h.partition_dir = t.partition_dir
), limits AS (
  SELECT *, max(CASE WHEN is_active THEN file_base_offset END) OVER log AS active_offset,
    -- the segment of the last stable offset; the first one where that is before it
    coalesce(max(CASE WHEN file_base_offset <= last_stable_offset THEN file_base_offset END) OVER log,
      CASE WHEN last_stable_offset IS NOT NULL THEN min(file_base_offset) OVER log END) AS open_offset,
    min(CASE WHEN is_young AND NOT is_active THEN file_base_offset END) OVER log AS young_offset
  FROM aged WINDOW log AS (PARTITION BY topic, partition, partition_dir)
), cleanable AS (
  SELECT topic, partition, partition_dir, segment, cleanup_policy, unread_records,
    least(active_offset, open_offset, young_offset) AS first_uncleanable_offset,
    coalesce(file_base_offset < least(active_offset, open_offset, young_offset), false) AS is_cleanable,
    CASE WHEN open_offset < active_offset AND open_offset <= coalesce(young_offset, open_offset) THEN 'open transaction'
      WHEN young_offset < active_offset THEN 'min.compaction.lag.ms' ELSE 'active segment' END AS held_by,
    row_number() OVER (PARTITION BY topic, partition, partition_dir ORDER BY segment) AS number,
    dense_rank() OVER (PARTITION BY topic ORDER BY partition, partition_dir) AS log
  FROM limits
), slim AS (
  -- No value goes on from here, and long keys as their SHA-256: only whether keys are equal counts. Records without
  -- a key are counted by segment, and each segment has a row, so that a log without records has one
  SELECT topic, partition, segment, batch_position, offset, size_bytes, 1 AS records, value IS NULL AS is_tombstone,
    CASE WHEN octet_length(key) < 32 THEN key ELSE unhex(sha2(key, 256)) END AS key
  FROM committed_records WHERE key IS NOT NULL
  UNION ALL
  SELECT topic, partition, segment, NULL, NULL, sum(size_bytes), count(*), false, NULL
  FROM committed_records WHERE key IS NULL GROUP BY topic, partition, segment
  UNION ALL
  SELECT topic, partition, segment, NULL, NULL, 0, 0, false, NULL FROM segments
), expired AS (
  SELECT topic, partition, segment, position
  FROM published_batches WHERE delete_horizon_ms <= coalesce(at_ms, unix_millis(current_timestamp))
), narrow AS (
  -- place: the order of a key's versions, by offset and segment; its last 11 digits are the version's tombstone and size.
  -- Engines compare a number faster than a struct, and keep one faster than three
  SELECT /*+ BROADCAST(s) */ c.topic, s.log, c.key, c.records, c.size_bytes, c.offset, s.is_cleanable,
    CAST(c.offset AS DECIMAL(19, 0)) * CAST(1000000000000000000 AS DECIMAL(19, 0)) + CAST(s.number * 100000000000 + c.size_bytes
      + CASE WHEN NOT c.is_tombstone THEN 0 WHEN s.is_cleanable AND e.position IS NOT NULL THEN 20000000000
        ELSE 10000000000 END AS DECIMAL(19, 0)) AS place
  FROM slim c JOIN cleanable s ON s.topic = c.topic AND s.partition = c.partition AND s.segment = c.segment
  LEFT JOIN expired e ON e.topic = c.topic AND e.partition = c.partition AND e.segment = c.segment AND e.position = c.batch_position
), keys AS (
  SELECT topic, log, key IS NOT NULL AS has_key,
    sum(records) AS records, sum(size_bytes) AS bytes, count_if(is_cleanable) AS cleanable,
    coalesce(sum(CASE WHEN is_cleanable THEN size_bytes END), 0) AS cleanable_bytes,
    CAST(pmod(max(place), 100000000000) AS BIGINT) AS newest,
    coalesce(CAST(pmod(max(CASE WHEN is_cleanable THEN place END), 100000000000) AS BIGINT), 0) AS newest_cleanable,
    try_element_at(min_by(offset, offset, 2), 2) AS second_offset
  FROM narrow GROUP BY topic, log, key
), summed AS (
  SELECT topic, log, sum(records) AS records, sum(bytes) AS record_bytes,
    coalesce(sum(CASE WHEN has_key THEN records END), 0) AS versions, count(*) FILTER (WHERE has_key) AS keys,
    coalesce(max(CASE WHEN has_key THEN records END), 0) AS most_versions,
    sum(CASE WHEN has_key THEN records - 1 ELSE 0 END) AS superseded_records,
    sum(CASE WHEN has_key THEN bytes - newest % 10000000000 ELSE 0 END) AS superseded_bytes,
    sum(CASE WHEN has_key AND cleanable > 0 THEN cleanable - 1 ELSE 0 END) AS freed_now_records,
    sum(CASE WHEN has_key THEN cleanable_bytes - newest_cleanable % 10000000000 ELSE 0 END) AS freed_now_bytes,
    count(*) FILTER (WHERE newest >= 10000000000) AS tombstones,
    count(*) FILTER (WHERE newest >= 20000000000) AS expired_tombstones, -- which the next cleaning removes
    min(CASE WHEN has_key THEN second_offset END) AS first_dirty_offset
  FROM keys GROUP BY topic, log
), held AS (
  SELECT DISTINCT topic, partition, partition_dir, log, cleanup_policy, unread_records, first_uncleanable_offset, held_by FROM cleanable
)
SELECT h.topic, h.partition, h.partition_dir, h.cleanup_policy, s.records, s.record_bytes, s.records - s.versions AS null_key_records, s.keys,
  s.versions / nullif(CAST(s.keys AS DOUBLE), 0) AS versions_per_key, s.most_versions, s.superseded_records, s.superseded_bytes,
  s.freed_now_records, s.freed_now_bytes, s.superseded_bytes - s.freed_now_bytes AS freed_later_bytes,
  h.first_uncleanable_offset, h.held_by, s.tombstones, s.expired_tombstones, s.first_dirty_offset, h.unread_records
FROM summed s JOIN held h ON h.topic = s.topic AND h.log = s.log
