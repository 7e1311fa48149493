-- Transactions that count, by outcome
WITH logs AS (
  SELECT topic, partition, partition_dir, max(transactions_generation) AS generation
  FROM log_segments GROUP BY topic, partition, partition_dir
)
SELECT outcome, CAST(count(*) AS BIGINT), CAST(sum(t.records) AS BIGINT),
  CAST(count(*) FILTER (outcome_uncertain) AS BIGINT), CAST(count(*) FILTER (holds_last_stable_offset) AS BIGINT)
FROM transactions t JOIN logs USING (topic, partition, partition_dir, generation) GROUP BY outcome ORDER BY outcome
