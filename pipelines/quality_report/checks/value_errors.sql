-- warning, sum, 0 payload: Keys and values that their schemas do not decode, as far as decode-values has run
SELECT s.file, count(*) AS amount, printf('%s of %d payload%s, the first at offset %d', e.reason, count(*),
  CASE WHEN count(*) = 1 THEN '' ELSE 's' END, min(e."offset"))
  AS detail
FROM value_errors e JOIN log_segments s USING (topic, partition, segment) GROUP BY s.file, e.reason
