-- warning, topic, 3 times: Largest partition against the topic's average
-- Of several copies of a partition the largest counts, whatever of it was decoded. Topics below 1 MiB are left out
WITH partitions AS (
  SELECT topic, partition, max(bytes) AS bytes FROM log_files GROUP BY ALL
)
SELECT topic, max(bytes) / avg(bytes) AS amount,
  printf('partition %d holds %d of %d bytes', arg_max(partition, bytes), CAST(max(bytes) AS BIGINT),
    CAST(sum(bytes) AS BIGINT)) AS detail
FROM partitions GROUP BY topic HAVING count(*) > 1 AND sum(bytes) >= 1048576
