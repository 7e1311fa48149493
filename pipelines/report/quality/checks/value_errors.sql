SELECT s.file, count(*) AS amount, printf('%s of %d payloads, the first at offset %d', e.reason, count(*), min(e."offset"))
  AS detail
FROM value_errors e JOIN log_segments s USING (topic, partition, segment) GROUP BY s.file, e.reason
