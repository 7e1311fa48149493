-- Every check of one run, the failed first
SELECT "check", CAST(count(*) FILTER (segment IS NULL) AS BIGINT),
  CAST(count(*) FILTER (segment IS NULL AND NOT passed) AS BIGINT),
  arg_max(row(topic, partition, value, detail), value) FILTER (segment IS NULL AND value IS NOT NULL)
FROM metrics GROUP BY "check"
