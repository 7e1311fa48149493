-- The last runs, the newest first: failed checks of partitions and topics, and two measures over all partitions.
-- In deltalake's SQL, which reads the table in pieces: its rows are those of all runs that ever were
SELECT run_id, created_at,
  count(*) FILTER (WHERE NOT passed AND severity = 'error') AS errors,
  count(*) FILTER (WHERE NOT passed AND severity = 'warning') AS warnings,
  count(*) AS measured,
  CAST(sum(value) FILTER (WHERE "check" = 'damaged_bytes') AS BIGINT) AS damaged,
  count(*) FILTER (WHERE "check" = 'crc_failure_rate' AND NOT passed) AS crc_partitions
FROM metrics WHERE segment IS NULL
GROUP BY run_id, created_at ORDER BY created_at DESC, run_id LIMIT {shown}
