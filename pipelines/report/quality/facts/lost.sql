-- What is lost in all logs
SELECT CAST(coalesce(sum(offsets), 0) AS HUGEINT), CAST(coalesce(sum(misplaced), 0) AS HUGEINT),
  count(*) FILTER (is_end_lost)
FROM lost
