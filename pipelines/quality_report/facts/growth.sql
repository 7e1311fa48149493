-- What was written when, by topic: sound batches of data whose time is credible, by hours, days, weeks, months or years
WITH timed AS (
  SELECT s.topic, make_timestamp(CAST(t.credible_newest_ms AS BIGINT) * 1000) AS written_at, b.size_bytes AS bytes, b.record_count AS records
  FROM sound b JOIN log_times t USING (file, position) JOIN log_segments s USING (file)
  WHERE NOT b.is_control AND t.credible_newest_ms IS NOT NULL
), span AS (
  SELECT date_diff('hour', min(written_at), max(written_at)) AS hours FROM timed
), units AS (
  SELECT CASE WHEN hours <= 96 THEN 'hour' WHEN hours <= 24 * 120 THEN 'day' WHEN hours <= 24 * 7 * 120 THEN 'week'
    WHEN hours <= 24 * 30 * 120 THEN 'month' ELSE 'year' END AS unit FROM span
)
SELECT unit, epoch_ms(CAST(date_trunc(unit, written_at) AS TIMESTAMP)) AS begin_ms, topic, CAST(sum(records) AS BIGINT) AS records,
  CAST(sum(bytes) AS BIGINT) AS bytes
FROM timed, units GROUP BY ALL ORDER BY begin_ms, bytes DESC, topic
