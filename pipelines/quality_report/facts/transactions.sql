-- Transactions by outcome
SELECT outcome, CAST(count(*) AS BIGINT), CAST(sum(records) AS BIGINT),
  CAST(count(*) FILTER (outcome_uncertain) AS BIGINT), CAST(count(*) FILTER (holds_last_stable_offset) AS BIGINT)
FROM transactions GROUP BY outcome ORDER BY outcome
